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

// killed is the exit status after SIGKILL.
const killed = 128 + uint32(unix.SIGKILL)

// Kill implements TTRPCTaskService. Sandboxes react to signals as the pause program does.
func (s *service) Kill(ctx context.Context, r *api.KillRequest) (*emptypb.Empty, error) {
	box := s.get(r.ID, r.ExecID)
	if box == nil {
		return s.TTRPCTaskService.Kill(ctx, r)
	}
	exit := uint32(0)
	switch unix.Signal(r.Signal) {
	case unix.SIGKILL:
		exit = killed
	case unix.SIGTERM, unix.SIGINT:
	default:
		return &emptypb.Empty{}, nil
	}
	if !s.end(r.ID, box, exit) {
		return nil, errgrpc.ToGRPC(fmt.Errorf("sandbox %s has ended: %w", r.ID, errdefs.ErrNotFound))
	}
	return &emptypb.Empty{}, nil
}

// end ends a sandbox, and reports whether it had not ended before.
func (s *service) end(id string, box *sandbox, exit uint32) bool {
	s.mu.Lock()
	ended := box.status == types.Status_STOPPED
	if !ended {
		box.status, box.exit, box.exitedAt = types.Status_STOPPED, exit, timestamppb.New(time.Now())
	}
	s.mu.Unlock()
	if ended {
		return false
	}
	box.Stop()
	s.publish(&events.TaskExit{ContainerID: id, ID: id, Pid: uint32(box.TID), ExitStatus: box.exit, ExitedAt: box.exitedAt})
	close(box.exited)
	return true
}

// state returns whether a sandbox was created, runs or has ended.
func (s *service) state(box *sandbox) types.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return box.status
}

// Delete implements TTRPCTaskService.
func (s *service) Delete(ctx context.Context, r *api.DeleteRequest) (*api.DeleteResponse, error) {
	box := s.get(r.ID, r.ExecID)
	if box == nil {
		return s.TTRPCTaskService.Delete(ctx, r)
	}
	switch s.state(box) {
	case types.Status_RUNNING:
		return nil, errgrpc.ToGRPC(fmt.Errorf("sandbox %s has not ended: %w", r.ID, errdefs.ErrFailedPrecondition))
	case types.Status_CREATED:
		s.end(r.ID, box, killed)
	}
	<-box.exited
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
	if s.state(box) == types.Status_STOPPED {
		return &api.PidsResponse{}, nil
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
