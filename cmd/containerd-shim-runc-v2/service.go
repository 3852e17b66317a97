package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	events "github.com/containerd/containerd/api/events"
	api "github.com/containerd/containerd/api/runtime/task/v3"
	types "github.com/containerd/containerd/api/types/task"
	coreevents "github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coracle-dev/coracle/pkg/runtime/pauseless"
)

// service answers for sandboxes that are threads, and leaves all other containers to containerd's service.
type service struct {
	api.TTRPCTaskService
	context   context.Context
	publisher coreevents.Publisher
	queue     chan func() // what is to be published, in order

	mu        sync.Mutex
	sandboxes map[string]*sandbox
}

// RegisterTTRPC implements shim.TTRPCService.
func (s *service) RegisterTTRPC(server *ttrpc.Server) error {
	api.RegisterTTRPCTaskService(server, s)
	return nil
}

// get returns a sandbox, nil if the id is of another container or of a process in one.
func (s *service) get(id, exec string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	if exec != "" {
		return nil
	}
	return s.sandboxes[id]
}

// publish has an event published after those before it.
func (s *service) publish(event any) {
	s.queue <- func() {
		if err := s.publisher.Publish(context.WithoutCancel(s.context), runtime.GetTopic(event), event); err != nil {
			log.G(s.context).WithError(err).Error("publishing an event")
		}
	}
}

// work publishes for ever.
func (s *service) work() {
	for do := range s.queue {
		do()
	}
}

// flush returns when everything is published.
func (s *service) flush() {
	done := make(chan struct{})
	s.queue <- func() { close(done) }
	<-done
}

// Create implements TTRPCTaskService.
func (s *service) Create(ctx context.Context, r *api.CreateTaskRequest) (*api.CreateTaskResponse, error) {
	spec, err := readSpec(r.Bundle)
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if !pauseless.Asked(spec) {
		if err := s.verify(spec); err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
		return s.TTRPCTaskService.Create(ctx, r)
	}
	thread, err := pauseless.Start(spec)
	if err != nil { // for example, /proc/sys is read-only
		log.G(ctx).WithError(err).Warnf("sandbox %s gets a pause container", r.ID)
		return s.TTRPCTaskService.Create(ctx, r)
	}
	if err := ctx.Err(); err != nil { // nobody would know of it
		thread.Stop()
		return nil, errgrpc.ToGRPC(err)
	}
	s.mu.Lock()
	s.sandboxes[r.ID] = &sandbox{
		Sandbox: thread, bundle: r.Bundle, status: types.Status_CREATED, exitedAt: timestamppb.New(time.Time{}), exited: make(chan struct{}),
	}
	s.mu.Unlock()
	s.publish(&events.TaskCreate{ContainerID: r.ID, Bundle: r.Bundle, Rootfs: r.Rootfs, IO: &events.TaskIO{}, Pid: uint32(thread.TID)})
	return &api.CreateTaskResponse{Pid: uint32(thread.TID)}, nil
}

func readSpec(bundle string) (*specs.Spec, error) {
	spec := &specs.Spec{}
	data, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err == nil {
		err = json.Unmarshal(data, spec)
	}
	return spec, err
}

// verify returns an error if a container would join namespaces that no thread has.
func (s *service) verify(spec *specs.Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sandbox := range s.sandboxes {
		if err := sandbox.Verify(spec); err != nil {
			return err
		}
	}
	return nil
}

// Shutdown implements TTRPCTaskService: the shim ends if it has no containers and no sandboxes.
func (s *service) Shutdown(ctx context.Context, r *api.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sandboxes) > 0 {
		return &emptypb.Empty{}, nil
	}
	s.flush()
	return s.TTRPCTaskService.Shutdown(ctx, r)
}
