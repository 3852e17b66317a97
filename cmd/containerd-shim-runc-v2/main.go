// Command containerd-shim-runc-v2 is containerd's shim for runc, in which sandboxes that ask for it are threads instead of pause containers.
package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/process"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"github.com/containerd/containerd/v2/plugins"
	runc "github.com/containerd/go-runc"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	"github.com/coracle-dev/coracle/pkg/runtime/pauseless"
)

func main() {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newService,
	})
	shim.RunShim(context.Background(), cleaner{manager.NewShimManager("io.containerd.runc.v2")})
}

// cleaner is containerd's manager of shims, which also removes what is left of a sandbox whose shim was killed.
type cleaner struct{ shim.Shim }

// Stop implements shim.Shim. It runs in a process of its own after the shim has died.
func (c cleaner) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	dir, err := os.Getwd()
	if err != nil {
		return shim.StopStatus{}, err
	}
	bundle := filepath.Join(filepath.Dir(dir), id)
	spec, err := readSpec(bundle)
	if _, noProcess := os.Stat(filepath.Join(bundle, process.InitPidFile)); err != nil || !pauseless.Asked(spec) || noProcess == nil {
		return c.Shim.Stop(ctx, id)
	}
	pauseless.Clean(spec.Linux.CgroupsPath)
	return shim.StopStatus{ExitedAt: time.Now(), ExitStatus: int(killed)}, nil
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
	runc.Monitor = monitor{reaper.Default}
	s := &service{
		TTRPCTaskService: containers, context: ic.Context, publisher: publisher.(shim.Publisher), queue: make(chan func(), 128), sandboxes: map[string]*sandbox{},
	}
	go s.work()
	return s, nil
}
