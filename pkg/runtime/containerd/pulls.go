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
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// Pulls says where images come from. All pulls go through containerd's transfer service, around which ours is put: the
// kubelet's and crictl's through CRI, and ctr's.
type Pulls struct {
	// File is the registries.yaml, read at each pull. What it says of a registry goes before the hosts.toml files.
	File *registries.Live
	// NoDefault does not ask a registry itself that has mirrors in the file.
	NoDefault bool
	// Report is told what is wrong with the file, or nil, when that changes. It may be nil.
	Report func(error)
}

const (
	transferPlugin = "io.containerd.transfer.v1.local"
	imagesPlugin   = "io.containerd.cri.v1.images"
)

// hook puts ours around containerd's transfer service; type, id and settings stay, so that drop-ins for it go on
// working. The plugins are in a list of the process, which is why this is done once in it.
func (p *puller) hook() {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for i := range all {
		r := &all[i]
		if r.URI() == transferPlugin {
			inner := r.InitFn
			r.InitFn = func(ic *plugin.InitContext) (any, error) { return p.around(inner(ic)) }
		}
		registry.Register(r)
	}
}

// around is what the plugin is instead of what it would be.
func (p *puller) around(instance any, err error) (any, error) {
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

// Transfer moves images. Pushes, imports and the like are containerd's alone.
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

// past are settings of drop-ins with which CRI pulls without the transfer service, and the value that keeps to it. Nil is
// any empty value.
var past = map[string]any{
	"use_local_image_pull":         false,
	"disable_snapshot_annotations": true,
	"discard_unpacked_layers":      false,
	"image_pull_with_sync_fs":      false,
	"max_concurrent_downloads":     int64(3),
	"registry.mirrors":             nil,
	"registry.configs":             nil,
	"registry.auths":               nil,
}

// checkPulls refuses drop-ins that would have containerd pull past us, as they would make a registries.yaml, and more than
// one directory of hosts.toml files, do nothing.
func (p Pulls) checkPulls(config *srvconfig.Config) error {
	settings, ok := config.Plugins[imagesPlugin].(map[string]any)
	if !ok {
		return nil
	}
	for name, keeps := range past {
		value, found, _ := unstructured.NestedFieldNoCopy(settings, strings.Split(name, ".")...) // an error: it is no table
		if !found || value == keeps || keeps == nil && isEmpty(value) {
			continue
		}
		err := fmt.Errorf("[plugins.%q]: with %s = %v containerd pulls images by itself, past registries.yaml: take it out of your drop-ins, "+
			"or do without that file", imagesPlugin, name, shown(value))
		file, wrong := p.File.Now()
		if wrong != nil || file.Says() {
			return err
		}
		log.L.Warn(err)
	}
	return nil
}

// shown is a setting's value, if that can be no secret.
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

// state returns the newest file, and says once what is wrong with it. A file that was never right is an error.
func (p *puller) state() (*registries.File, error) {
	file, wrong := p.File.Now()
	p.mu.Lock()
	said := p.said
	if p.said = wrong; !sameError(said, wrong) {
		p.tell(wrong)
	}
	p.mu.Unlock()
	if file == nil {
		return nil, fmt.Errorf("no image is pulled until this is mended: %w", wrong)
	}
	return file, nil
}

func (p *puller) tell(wrong error) {
	if p.Report != nil {
		p.Report(wrong)
	}
	if wrong != nil {
		log.L.WithError(wrong).Error("registries.yaml is as it was before, until this is mended")
		return
	}
	log.L.Info("registries.yaml is right again")
}

func sameError(a, b error) bool {
	return a == nil && b == nil || a != nil && b != nil && (errors.Is(a, b) || a.Error() == b.Error())
}
