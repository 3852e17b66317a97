package containerd

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"

	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"github.com/containerd/containerd/v2/version"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/pelletier/go-toml/v2"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/crisocket"
)

//go:embed config.toml.tmpl
var configTemplate string

// The snapshotters. Native copies whole layers: slow and large, but it works on any file system.
const (
	overlay = "overlayfs"
	native  = "native"
)

// render returns the generated configuration.
func (c Containerd) render() ([]byte, error) {
	t, err := template.New("config").Funcs(template.FuncMap{
		"str":        strconv.Quote, // TOML's basic strings are quoted as Go's are, for the paths and names used here
		"join":       func(s []string) string { return strings.Join(s, ":") },
		"maxMessage": func() int { return crisocket.MaxMessage },
	}).Parse(configTemplate)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, c); err != nil {
		return nil, fmt.Errorf("rendering containerd's configuration: %w", err)
	}
	return out.Bytes(), nil
}

// Snapshotter chooses overlayfs unless the file system of root, which is made if missing, does not support it. On a full disk support
// cannot be tested. The choice is then overlayfs as well, because a start with another snapshotter would not find the images.
func Snapshotter(root string) string {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return overlay // the start reports the error
	}
	if err := overlayutils.Supported(root); err != nil && !errors.Is(err, unix.ENOSPC) {
		logrus.WithField("component", "containerd").WithError(err).
			Warnf("no overlayfs below %s: copying image layers instead, which is slow and takes space", root)
		return native
	}
	return overlay
}

// load reads the generated file and the drop-ins after it, into the newest version of the format.
func load(ctx context.Context, file, dropIns string) (*srvconfig.Config, error) {
	files, err := filepath.Glob(filepath.Join(dropIns, "*.toml"))
	if err != nil {
		return nil, fmt.Errorf("listing containerd's drop-ins in %s: %w", dropIns, err)
	}
	slices.Sort(files)
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	migrations := func() iter.Seq[plugin.Registration] { return slices.Values(all) }

	config := &srvconfig.Config{Version: version.ConfigVersion, Plugins: map[string]any{},
		StreamProcessors: map[string]srvconfig.StreamProcessor{}, ProxyPlugins: map[string]srvconfig.ProxyPlugin{},
		Timeouts: map[string]string{}}
	for _, f := range append([]string{file}, files...) {
		if err := check(f); err != nil {
			return nil, err
		}
		if err := srvconfig.LoadConfigWithPlugins(ctx, f, migrations, config); err != nil {
			return nil, fmt.Errorf("reading containerd's configuration %s: %w", f, err)
		}
	}
	return config, checkPlugins(config, all, files)
}

// check refuses unknown top-level keys and broken TOML, which containerd itself would log and ignore.
func check(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var into srvconfig.Config
	err = toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&into)
	var unknown *toml.StrictMissingError
	var broken *toml.DecodeError
	switch {
	case errors.As(err, &unknown):
		row, _ := unknown.Errors[0].Position()
		return fmt.Errorf("%s, line %d: containerd knows no setting %q", file, row, strings.Join(unknown.Errors[0].Key(), "."))
	case errors.As(err, &broken):
		row, column := broken.Position()
		return fmt.Errorf("%s, line %d, column %d: %w", file, row, column, broken)
	case err != nil:
		return fmt.Errorf("%s: %w", file, err)
	case into.Version == 0:
		return fmt.Errorf("%s: the first line has to be version = %d, so that containerd knows the format", file, version.ConfigVersion)
	}
	return nil
}

// checkPlugins refuses settings that a plugin does not have, and settings of plugins that do not exist.
func checkPlugins(config *srvconfig.Config, all []plugin.Registration, files []string) error {
	known := map[string]plugin.Registration{}
	for _, p := range all {
		known[p.URI()] = p
	}
	where := "containerd's configuration"
	if len(files) > 0 {
		where = strings.Join(files, ", ")
	}
	for id, settings := range config.Plugins {
		p, ok := known[id]
		if !ok {
			if _, proxy := config.ProxyPlugins[id]; !proxy {
				return fmt.Errorf("%s: containerd has no plugin %q", where, id)
			}
			continue
		}
		if p.Config == nil {
			continue
		}
		if err := decodes(settings, p.Config); err != nil {
			return fmt.Errorf("%s: [plugins.%q]: %w", where, id, err)
		}
	}
	return nil
}

// decodes decodes settings into a new value of the plugin's type.
func decodes(settings, into any) error {
	data, err := toml.Marshal(settings)
	if err != nil {
		return err
	}
	fresh := reflect.New(reflect.TypeOf(into).Elem()).Interface()
	err = toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(fresh)
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		return fmt.Errorf("there is no setting %q", strings.Join(unknown.Errors[0].Key(), "."))
	}
	return err
}
