// Command containerd-shim-runc-v2 is containerd's shim for runc, in which sandboxes that ask for it are threads instead of pause containers.
package main

import (
	"context"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

func main() {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newService,
	})
	shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}

// newService returns the service of containers, which is containerd's, and sandboxes.
func newService(ic *plugin.InitContext) (any, error) {
	publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	sd, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	containers, err := task.NewTaskService(ic.Context, publisher.(shim.Publisher), sd.(shutdown.Service))
	if err != nil {
		return nil, err
	}
	return &service{TTRPCTaskService: containers, context: ic.Context, publisher: publisher.(shim.Publisher), sandboxes: map[string]*sandbox{}}, nil
}
