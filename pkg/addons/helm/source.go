package helm

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
)

const (
	// limit is the maximum size of an archive in bytes. A release contains its chart, and must fit into a Secret of 1 MiB.
	limit = 16 << 20
	// indexLimit is the maximum size of a repository's index in bytes. Parsing takes twenty times as much memory.
	indexLimit = 32 << 20
)

// apiHost is the placeholder for the API server's address in k3s' manifests.
const apiHost = "%{KUBERNETES_API}%"

// source tells where a chart comes from.
type source struct {
	spec   chartSpec
	charts string // the directory of charts on this machine
	copy   string // where it is read, if that is elsewhere
}

// local returns the name of a file in the directory of charts, and whether the chart is one: by a path in it, or by the
// address at which k3s serves such a directory.
func (s source) local() (name string, ok bool, err error) {
	name = s.spec.Chart
	if s.spec.ChartContent != "" || s.spec.Repo != "" {
		return "", false, nil
	}
	for _, prefix := range []string{"https://" + apiHost + "/static/charts/", "file://" + s.charts + "/", s.charts + "/", "charts/"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest, true, nil
		}
	}
	if strings.HasPrefix(name, "file://") || filepath.IsAbs(name) {
		return "", false, fmt.Errorf("chart %s is outside of %s, from which alone files are taken", name, s.charts)
	}
	return "", false, nil
}

// content is a hash of the chart's archive, or "" if the archive is not on this machine.
func (s source) content() (string, error) {
	name, ok, err := s.local()
	if err != nil {
		return "", err
	}
	data := []byte(s.spec.ChartContent)
	if ok {
		if data, err = s.file(name); err != nil {
			return "", err
		}
	}
	if len(data) == 0 {
		return "", nil
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// file reads a file in the directory of charts, and none outside of it, through links neither.
func (s source) file(name string) ([]byte, error) {
	f, err := os.OpenInRoot(cmp.Or(s.copy, s.charts), name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s on this server; it is read by the server that leads, so put it on each", filepath.Join(s.charts, name))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the chart: %w", err)
	}
	defer f.Close()
	return readAll(f, limit)
}

// readAll reads at most so many bytes; more are an error.
func readAll(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("it has more than %d MiB", most>>20)
	}
	return data, nil
}

// load reads a packed chart.
func load(archive []byte) (*chartv2.Chart, error) {
	loaded, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("reading the chart's archive: %w", err)
	}
	c, ok := loaded.(*chartv2.Chart)
	if !ok {
		return nil, errors.New("the chart has an apiVersion other than v1 and v2")
	}
	if c.Metadata.Type == "library" {
		return nil, fmt.Errorf("chart %s is a library, which cannot be installed", c.Name())
	}
	have := map[string]bool{}
	for _, d := range c.Dependencies() {
		have[d.Name()] = true
	}
	for _, d := range c.Metadata.Dependencies {
		if !have[d.Name] {
			return nil, fmt.Errorf("chart %s needs %s, which is not in its archive: pack it after `helm dependency build`", c.Name(), d.Name)
		}
	}
	return c, nil
}

// packed fetches the chart's archive within fetchPatience.
func (s source) packed(ctx context.Context, with access) ([]byte, error) {
	ctx, enough := context.WithTimeout(ctx, fetchPatience)
	defer enough()
	return s.archive(ctx, with)
}

// archive fetches the chart's archive.
func (s source) archive(ctx context.Context, with access) ([]byte, error) {
	name, ok, err := s.local()
	switch {
	case err != nil:
		return nil, err
	case ok:
		return s.file(name)
	case s.spec.ChartContent != "":
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s.spec.ChartContent), ""))
		if err != nil {
			return nil, fmt.Errorf("chartContent is no base64: %w", err)
		}
		return data, nil
	}
	at := strings.ReplaceAll(s.spec.Chart, apiHost, with.api)
	if strings.HasPrefix(s.spec.Repo, "oci://") {
		at = strings.TrimSuffix(s.spec.Repo, "/") + "/" + s.spec.Chart
	}
	u, err := url.Parse(at)
	switch {
	case err != nil:
		return nil, errors.New("chart is no address") // without the text, which may contain a password
	case u.Scheme == "oci":
		return with.oci(ctx, at, s.spec.Version)
	case u.Scheme == "http" || u.Scheme == "https":
		return with.download(ctx, u, u, limit)
	case u.Scheme != "":
		return nil, fmt.Errorf("chart %s: neither https, http nor oci", u.Redacted())
	case s.spec.Repo == "":
		return nil, fmt.Errorf("chart %s: without repo, it must be an address, or a path below %s", s.spec.Chart, s.charts)
	}
	return with.fromRepository(ctx, s.spec.Repo, s.spec.Chart, s.spec.Version)
}
