package containerd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/core/transfer"
	ociregistry "github.com/containerd/containerd/v2/core/transfer/registry"
	"github.com/containerd/log"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// Pulls are the settings of image pulls. All pulls, of the kubelet and crictl through CRI and of ctr, use containerd's transfer
// service, which this package wraps.
type Pulls struct {
	// File is the registries.yaml, read at each pull. For a registry in it, hosts.toml files are ignored.
	File *registries.Live
	// NoDefault excludes registries themselves if they have mirrors in the file.
	NoDefault bool
	// Report is called when the error of the file changes, with nil if there is none. It may be nil.
	Report func(error)
}

// wrap returns the wrapped instance of the plugin.
func (p *puller) wrap(instance any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	service, ok := instance.(transfer.Transferrer)
	if !ok {
		return nil, fmt.Errorf("containerd's transfer service is a %T", instance)
	}
	if hooked, again := service.(transferrer); again { // another start in the same process
		service = hooked.Transferrer
	}
	return transferrer{service, p}, nil
}

// transferrer is containerd's transfer service with another source for pulls.
type transferrer struct {
	transfer.Transferrer
	pulls *puller
}

// Transfer implements transfer.Transferrer. Only pulls are changed, not pushes, imports and exports.
func (t transferrer) Transfer(ctx context.Context, from, to any, opts ...transfer.Opt) error {
	r, isRegistry := from.(*ociregistry.OCIRegistry)
	if _, isPull := to.(transfer.ImageStorer); isRegistry && isPull {
		s, err := t.pulls.source(ctx, r)
		if err != nil {
			return err
		}
		if s != nil {
			defer s.Close()
			from = s
		}
	}
	return t.Transferrer.Transfer(ctx, from, to, opts...)
}

// bypassing are the settings with which CRI pulls images without the transfer service, each with the value that uses the service.
// Nil is any empty value.
var bypassing = map[string]any{
	"use_local_image_pull":         false,
	"disable_snapshot_annotations": true,
	"discard_unpacked_layers":      false,
	"image_pull_with_sync_fs":      false,
	"max_concurrent_downloads":     int64(3),
	"registry.mirrors":             nil,
	"registry.configs":             nil,
	"registry.auths":               nil,
}

// checkPulls refuses drop-ins with which containerd would not use the transfer service: registries.yaml would have no effect.
func (p Pulls) checkPulls(config *srvconfig.Config) error {
	settings, ok := config.Plugins[imagesPlugin].(map[string]any)
	if !ok {
		return nil
	}
	for name, keeps := range bypassing {
		value, found, _ := unstructured.NestedFieldNoCopy(settings, strings.Split(name, ".")...) // an error: it is no table
		if !found || value == keeps || keeps == nil && isEmpty(value) {
			continue
		}
		err := fmt.Errorf("[plugins.%q]: with %s = %v containerd pulls images by itself, past registries.yaml: take it out of your drop-ins, "+
			"or do without that file", imagesPlugin, name, shown(value))
		file, wrong := p.File.Now()
		if wrong != nil || file.HasEntries() {
			return err
		}
		log.L.Warn(err)
	}
	return nil
}

// shown returns the value of a setting for a message. A table may contain secrets.
func shown(value any) any {
	if _, ok := value.(map[string]any); ok {
		return "…"
	}
	return value
}

func isEmpty(value any) bool {
	m, ok := value.(map[string]any)
	return value == nil || ok && len(m) == 0
}

// state returns the last valid content of the file, and reports its error if that has changed. It fails if no content was valid.
func (p *puller) state() (*registries.File, error) {
	file, wrong := p.File.Now()
	p.mu.Lock()
	before := p.reported
	if p.reported = wrong; !sameError(before, wrong) {
		p.report(wrong)
	}
	p.mu.Unlock()
	if file == nil {
		return nil, fmt.Errorf("no image is pulled until registries.yaml is corrected: %w", wrong)
	}
	return file, nil
}

func (p *puller) report(wrong error) {
	if p.Report != nil {
		p.Report(wrong)
	}
	if wrong != nil {
		log.L.WithError(wrong).Error("registries.yaml has a mistake; its previous content stays in force")
		return
	}
	log.L.Info("registries.yaml is valid again")
}

func sameError(a, b error) bool {
	return a == nil && b == nil || a != nil && b != nil && (errors.Is(a, b) || a.Error() == b.Error())
}
