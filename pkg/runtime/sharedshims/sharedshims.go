// Package sharedshims lets several pods share one shim. A shim takes 4.3 MB of private memory, most of it the same for one container and
// for fifty. A pod's sandbox joins a shim that has room in the same way as containers join the shim of their sandbox; the shim itself is
// containerd's, but for sandboxes that are threads (see package pauseless). The number of pods per shim is limited because when a shim is killed all of its containers end with it.
package sharedshims

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// Capacity is the number of pods that share one shim at most. Measured with 60 pods: 10 take 38 MB of shims, 20 take 24 MB; 20 run again 2.3 s after
// theirs was killed.
const Capacity = 20

// criNamespace is containerd's namespace of the kubelet's pods. Containers of other clients have shims of their own.
const criNamespace = "k8s.io"

// TaskManager is containerd's plugin io.containerd.runtime.v2.task.
type TaskManager interface {
	runtime.PlatformRuntime
	PluginInfo(ctx context.Context, request any) (any, error)
}

// Runtime is the plugin whose sandboxes share shims.
type Runtime struct {
	TaskManager
	shims Shims
	store containers.Store
	on    bool

	mu     sync.Mutex
	shared []*shim
}

// New wraps the plugin, which has connected to the shims of running pods already. store has the containers of the kubelet, and bundles is the
// directory with a subdirectory for each. If on is false, new pods have shims and pause containers of their own.
func New(inner TaskManager, shims Shims, store containers.Store, bundles string, on bool) (*Runtime, error) {
	r := &Runtime{TaskManager: inner, shims: shims, store: store, on: on}
	r.mu.Lock()
	defer r.mu.Unlock()
	names, err := shims.resume(r.ended)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		r.add(name)
	}
	pods, err := os.ReadDir(bundles)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, pod := range pods {
		address, sandbox := joined(filepath.Join(bundles, pod.Name()))
		if s := r.at(address); s != nil && sandbox == pod.Name() {
			s.pods[sandbox] = true
		}
	}
	return r, nil
}

// add makes a running shim known. The caller holds mu, as those of at and room do.
func (r *Runtime) add(name string) *shim {
	s := &shim{name: name, address: r.shims.address(name), pods: map[string]bool{}, settled: sync.NewCond(&r.mu), ended: make(chan struct{})}
	r.shared = append(r.shared, s)
	return s
}

// at returns the shim with an address, nil if it is none of ours.
func (r *Runtime) at(address string) *shim {
	if i := slices.IndexFunc(r.shared, func(s *shim) bool { return s.address == address }); i >= 0 {
		return r.shared[i]
	}
	return nil
}

// ended forgets a shim whose process has ended. Containerd ends and reports its containers.
func (r *Runtime) ended(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shared = slices.DeleteFunc(r.shared, func(s *shim) bool {
		if s.name == name {
			close(s.ended)
		}
		return s.name == name
	})
}

// Create implements runtime.PlatformRuntime. The sandboxes of pods that use coracle's own shim join a shim that has room, as threads if possible.
func (r *Runtime) Create(ctx context.Context, id string, opts runtime.CreateOpts) (runtime.Task, error) {
	namespace, _ := namespaces.Namespace(ctx)
	if !r.on || namespace != criNamespace || opts.Runtime != r.shims.Program || opts.SandboxID != "" || opts.Address != "" {
		return r.TaskManager.Create(ctx, id, opts)
	}
	opts.Spec = r.withoutPause(ctx, id, opts.Spec)
	for again := false; ; again = true {
		s, err := r.join(id)
		if err != nil {
			return nil, err
		}
		opts.SandboxID, opts.Address, opts.Version = id, protocol+"+"+s.address, version
		task, err := r.TaskManager.Create(ctx, id, opts)
		r.arrived(s, id, err == nil && addressOf(task) == s.address, ctx.Err() != nil) // containerd starts another shim for what is no sandbox
		if err == nil || again || !s.endsWithin(patience) {
			return task, err
		}
		log.G(ctx).WithError(err).Warnf("%s ended while sandbox %s was created in it: using another shim", s.name, id)
	}
}

// join reserves a place for a pod: in the fullest shim with room, so that others become empty and end, or in a new one.
func (r *Runtime) join(id string) (*shim, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var best *shim
	for _, s := range r.shared {
		if !s.leaving && len(s.pods) < Capacity && (best == nil || len(s.pods) > len(best.pods)) {
			best = s
		}
	}
	if best == nil {
		name, err := r.shims.start(r.ended)
		if err != nil {
			return nil, err
		}
		best = r.add(name)
	}
	best.pods[id] = true
	best.arriving++
	return best, nil
}

// arrived ends the arrival of a pod. Containerd asks the shim of one that failed to end if it has no containers. One that did not answer in time gets no
// more pods: it would be asked again and again, as the fullest that lives.
func (r *Runtime) arrived(s *shim, id string, ok, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.arriving--
	if !ok {
		delete(s.pods, id)
		s.leaving = s.leaving || late
	}
	s.settled.Broadcast()
}

// Delete implements runtime.PlatformRuntime. Containerd asks a shim to end after each deletion, which it does if it has no containers, so
// the last one waits for pods that are arriving, and none arrives later.
func (r *Runtime) Delete(ctx context.Context, id string) (*runtime.Exit, error) {
	task, err := r.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	s := r.leave(task, id)
	exit, err := r.TaskManager.Delete(ctx, id)
	if s != nil && (err == nil || errdefs.IsNotFound(err)) {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(s.pods, id)
	}
	return exit, err
}

// leave waits until the shim of a task, if it is shared, can end: until another pod has arrived, or nobody can any more.
func (r *Runtime) leave(task runtime.Task, id string) *shim {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.at(addressOf(task))
	if s == nil {
		return nil
	}
	for s.arriving > 0 && s.last(id) {
		s.settled.Wait()
	}
	if s.last(id) {
		s.leaving = true
	}
	return s
}
