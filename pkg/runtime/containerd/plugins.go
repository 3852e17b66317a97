package containerd

import (
	"fmt"

	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"github.com/coracle-dev/coracle/pkg/runtime/sharedshims"
	"github.com/coracle-dev/coracle/pkg/runtime/taskstats"
)

const (
	contentPlugin  = "io.containerd.content.v1.content"
	differPlugin   = "io.containerd.differ.v1.walking"
	imagesPlugin   = "io.containerd.cri.v1.images"
	runtimePlugin  = "io.containerd.runtime.v2.task"
	transferPlugin = "io.containerd.transfer.v1.local"
)

// hook wraps containerd's transfer service, its content store, what unpacks layers, and what creates containers. Type, ID and settings of the plugins stay, so that drop-ins for them
// still work. The list of plugins belongs to the process.
func (c Containerd) hook(p *puller) {
	all := registry.Graph(func(*plugin.Registration) bool { return false })
	registry.Reset()
	for i := range all {
		r := &all[i]
		inner := r.InitFn
		switch r.URI() {
		case transferPlugin:
			r.InitFn = func(ic *plugin.InitContext) (any, error) { return p.wrap(inner(ic)) }
		case differPlugin:
			r.InitFn = func(ic *plugin.InitContext) (any, error) { return syncLayers(inner(ic)) }
		case contentPlugin:
			r.InitFn = func(ic *plugin.InitContext) (any, error) {
				instance, err := inner(ic)
				return resumeSafely(instance, ic.Properties[plugins.PropertyRootDir], err)
			}
		case runtimePlugin:
			r.InitFn = func(ic *plugin.InitContext) (any, error) {
				instance, err := inner(ic)
				return c.shareShims(ic, instance, err)
			}
		}
		registry.Register(r)
	}
}

// shareShims lets pods share shims from now on if that is wanted, and in any case finds those that are shared since an earlier start. Shims
// of runc are not asked for statistics.
func (c Containerd) shareShims(ic *plugin.InitContext, instance any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	db, err := ic.GetSingle(plugins.MetadataPlugin)
	if err != nil {
		return nil, err
	}
	if again, ok := instance.(*taskstats.Runtime); ok { // another start in the same process
		instance = again.TaskManager.(*sharedshims.Runtime).TaskManager
	}
	tasks, ok := instance.(sharedshims.TaskManager)
	if !ok {
		return nil, fmt.Errorf("containerd's plugin %s is a %T", runtimePlugin, instance)
	}
	store := metadata.NewContainerStore(db.(*metadata.DB))
	shims := sharedshims.Shims{Program: c.Shim, Dir: c.ShimSocket, Socket: c.Socket}
	shared, err := sharedshims.New(tasks, shims, store, c.bundles(), c.SharedShims)
	if err != nil {
		return nil, err
	}
	return taskstats.New(shared, store), nil
}
