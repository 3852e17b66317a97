package main

import (
	"context"
	"fmt"
	"os"
	"time"

	events "github.com/containerd/containerd/api/events"
	api "github.com/containerd/containerd/api/runtime/task/v3"
	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/coracle-dev/coracle/pkg/runtime/pauseless"
)

// sandbox is the state of a sandbox. The service's mu guards what changes.
type sandbox struct {
	*pauseless.Sandbox
	bundle   string
	status   types.Status
	exit     uint32
	exitedAt *timestamppb.Timestamp
	exited   chan struct{}
}

// Start implements TTRPCTaskService.
func (s *service) Start(ctx context.Context, r *api.StartRequest) (*api.StartResponse, error) {
	box := s.get(r.ID, r.ExecID)
	if box == nil {
		return s.TTRPCTaskService.Start(ctx, r)
	}
	s.mu.Lock()
	created := box.status == types.Status_CREATED
	if created {
		box.status = types.Status_RUNNING
	}
	s.mu.Unlock()
	if !created {
		return nil, errgrpc.ToGRPC(fmt.Errorf("sandbox %s was started before: %w", r.ID, errdefs.ErrFailedPrecondition))
	}
	s.publish(&events.TaskStart{ContainerID: r.ID, Pid: uint32(box.TID)})
	return &api.StartResponse{Pid: uint32(box.TID)}, nil
}

// Kill implements TTRPCTaskService. Sandboxes react to signals as the pause program does.
func (s *service) Kill(ctx context.Context, r *api.KillRequest) (*emptypb.Empty, error) {
	box := s.get(r.ID, r.ExecID)
	if box == nil {
		return s.TTRPCTaskService.Kill(ctx, r)
	}
	exit := uint32(0)
	switch unix.Signal(r.Signal) {
	case unix.SIGKILL:
		exit = 128 + uint32(unix.SIGKILL)
	case unix.SIGTERM, unix.SIGINT:
	default:
		return &emptypb.Empty{}, nil
	}
	s.mu.Lock()
	running := box.status != types.Status_STOPPED
	if running {
		box.status, box.exit, box.exitedAt = types.Status_STOPPED, exit, timestamppb.New(time.Now())
	}
	s.mu.Unlock()
	if !running {
		return nil, errgrpc.ToGRPC(fmt.Errorf("sandbox %s has ended: %w", r.ID, errdefs.ErrNotFound))
	}
	box.Stop()
	close(box.exited)
	s.publish(&events.TaskExit{ContainerID: r.ID, ID: r.ID, Pid: uint32(box.TID), ExitStatus: box.exit, ExitedAt: box.exitedAt})
	return &emptypb.Empty{}, nil
}

// Delete implements TTRPCTaskService.
func (s *service) Delete(ctx context.Context, r *api.DeleteRequest) (*api.DeleteResponse, error) {
	box := s.get(r.ID, r.ExecID)
	if box == nil {
		return s.TTRPCTaskService.Delete(ctx, r)
	}
	select {
	case <-box.exited:
	default:
		return nil, errgrpc.ToGRPC(fmt.Errorf("sandbox %s has not ended: %w", r.ID, errdefs.ErrFailedPrecondition))
	}
	s.mu.Lock()
	delete(s.sandboxes, r.ID)
	s.mu.Unlock()
	s.publish(&events.TaskDelete{ContainerID: r.ID, Pid: uint32(box.TID), ExitStatus: box.exit, ExitedAt: box.exitedAt})
	return &api.DeleteResponse{Pid: uint32(box.TID), ExitStatus: box.exit, ExitedAt: box.exitedAt}, nil
}

// Wait implements TTRPCTaskService.
func (s *service) Wait(ctx context.Context, r *api.WaitRequest) (*api.WaitResponse, error) {
	box := s.get(r.ID, r.ExecID)
	if box == nil {
		return s.TTRPCTaskService.Wait(ctx, r)
	}
	select {
	case <-box.exited:
		return &api.WaitResponse{ExitStatus: box.exit, ExitedAt: box.exitedAt}, nil
	case <-ctx.Done():
		return nil, errgrpc.ToGRPC(ctx.Err())
	}
}

// State implements TTRPCTaskService.
func (s *service) State(ctx context.Context, r *api.StateRequest) (*api.StateResponse, error) {
	box := s.get(r.ID, r.ExecID)
	if box == nil {
		return s.TTRPCTaskService.State(ctx, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &api.StateResponse{ID: r.ID, Bundle: box.bundle, Pid: uint32(box.TID), Status: box.status, ExitStatus: box.exit, ExitedAt: box.exitedAt}, nil
}

// Pids implements TTRPCTaskService.
func (s *service) Pids(ctx context.Context, r *api.PidsRequest) (*api.PidsResponse, error) {
	box := s.get(r.ID, "")
	if box == nil {
		return s.TTRPCTaskService.Pids(ctx, r)
	}
	return &api.PidsResponse{Processes: []*types.ProcessInfo{{Pid: uint32(box.TID)}}}, nil
}

// Connect implements TTRPCTaskService.
func (s *service) Connect(ctx context.Context, r *api.ConnectRequest) (*api.ConnectResponse, error) {
	box := s.get(r.ID, "")
	if box == nil {
		return s.TTRPCTaskService.Connect(ctx, r)
	}
	return &api.ConnectResponse{ShimPid: uint32(os.Getpid()), TaskPid: uint32(box.TID)}, nil
}

// Update implements TTRPCTaskService. There is nothing to limit in a sandbox.
func (s *service) Update(ctx context.Context, r *api.UpdateTaskRequest) (*emptypb.Empty, error) {
	if s.get(r.ID, "") == nil {
		return s.TTRPCTaskService.Update(ctx, r)
	}
	return &emptypb.Empty{}, nil
}
