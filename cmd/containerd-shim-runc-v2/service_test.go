package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	api "github.com/containerd/containerd/api/runtime/task/v3"
	types "github.com/containerd/containerd/api/types/task"
	coreevents "github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/coracle-dev/coracle/pkg/runtime/pauseless"
)

// containers is containerd's service, which records the containers that reach it.
type containers struct {
	api.TTRPCTaskService
	created []string
	ended   bool
}

func (c *containers) Create(_ context.Context, r *api.CreateTaskRequest) (*api.CreateTaskResponse, error) {
	c.created = append(c.created, r.ID)
	return &api.CreateTaskResponse{Pid: 1}, nil
}

func (c *containers) State(context.Context, *api.StateRequest) (*api.StateResponse, error) {
	return nil, errgrpc.ToGRPC(errdefs.ErrNotFound)
}

func (c *containers) Shutdown(context.Context, *api.ShutdownRequest) (*emptypb.Empty, error) {
	c.ended = true
	return &emptypb.Empty{}, nil
}

// published are the topics of events.
type published struct {
	mu     sync.Mutex
	topics []string
}

func (p *published) Publish(_ context.Context, topic string, _ coreevents.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.topics = append(p.topics, topic)
	return nil
}

// newTest returns a service for the tests.
func newTest() (*service, *containers, *published) {
	c, p := &containers{}, &published{}
	s := &service{TTRPCTaskService: c, context: context.Background(), publisher: p, queue: make(chan func(), 1), sandboxes: map[string]*sandbox{}}
	go s.work()
	return s, c, p
}

// bundle returns a directory with a specification.
func bundle(t *testing.T, annotation string, namespaces ...specs.LinuxNamespace) string {
	t.Helper()
	data, err := json.Marshal(specs.Spec{Hostname: "web-0", Annotations: map[string]string{pauseless.Annotation: annotation, "io.kubernetes.cri.container-type": "sandbox"}, Linux: &specs.Linux{Namespaces: namespaces}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var podNamespaces = []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}}

// TestSandbox takes a sandbox from its creation to its deletion.
func TestSandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this needs root, to make namespaces")
	}
	ctx := context.Background()
	s, inner, events := newTest()
	created, err := s.Create(ctx, &api.CreateTaskRequest{ID: "box", Bundle: bundle(t, "true", podNamespaces...)})
	if err != nil {
		t.Fatal(err)
	}
	pid := created.Pid
	status := func() types.Status {
		t.Helper()
		state, err := s.State(ctx, &api.StateRequest{ID: "box"})
		if err != nil || state.Pid != pid {
			t.Fatalf("the state is %v, %v", state, err)
		}
		return state.Status
	}
	if status() != types.Status_CREATED || len(inner.created) != 0 {
		t.Errorf("it is %s, containers %v", status(), inner.created)
	}
	if started, err := s.Start(ctx, &api.StartRequest{ID: "box"}); err != nil || started.Pid != pid || status() != types.Status_RUNNING {
		t.Errorf("started %v, %v, now %s", started, err, status())
	}
	if _, err := s.Start(ctx, &api.StartRequest{ID: "box"}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) {
		t.Errorf("started twice: %v", err)
	}
	if _, err := s.Delete(ctx, &api.DeleteRequest{ID: "box"}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) {
		t.Errorf("deleting a sandbox that lives: %v", err)
	}
	if _, err := s.Shutdown(ctx, &api.ShutdownRequest{}); err != nil || inner.ended {
		t.Errorf("a shim with a sandbox has ended, %v", err)
	}
	if pids, err := s.Pids(ctx, &api.PidsRequest{ID: "box"}); err != nil || len(pids.Processes) != 1 || pids.Processes[0].Pid != pid {
		t.Errorf("pids are %v, %v", pids, err)
	}
	waited := make(chan *api.WaitResponse)
	go func() {
		w, _ := s.Wait(ctx, &api.WaitRequest{ID: "box"})
		waited <- w
	}()
	if _, err := s.Kill(ctx, &api.KillRequest{ID: "box", Signal: uint32(unix.SIGUSR1)}); err != nil || status() != types.Status_RUNNING {
		t.Errorf("after SIGUSR1 it is %s, %v", status(), err)
	}
	if _, err := s.Kill(ctx, &api.KillRequest{ID: "box", Signal: uint32(unix.SIGKILL)}); err != nil {
		t.Error(err)
	}
	if w := <-waited; w == nil || w.ExitStatus != 137 || w.ExitedAt == nil {
		t.Errorf("the exit is %v", w)
	}
	if _, err := s.Kill(ctx, &api.KillRequest{ID: "box", Signal: uint32(unix.SIGKILL)}); !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("killed twice: %v", err)
	}
	if deleted, err := s.Delete(ctx, &api.DeleteRequest{ID: "box"}); err != nil || deleted.ExitStatus != 137 || deleted.Pid != pid {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	if _, err := s.State(ctx, &api.StateRequest{ID: "box"}); !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("after its deletion: %v", err)
	}
	if _, err := s.Shutdown(ctx, &api.ShutdownRequest{}); err != nil || !inner.ended {
		t.Errorf("an empty shim has not ended, %v", err)
	}
	if want := []string{"/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"}; !slices.Equal(events.topics, want) {
		t.Errorf("events are %v", events.topics)
	}
}

// TestNotStarted: containerd deletes a sandbox whose creation it gave up, without a start.
func TestNotStarted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this needs root, to make namespaces")
	}
	s, _, _ := newTest()
	dir := bundle(t, "true", podNamespaces...)
	given, cancel := context.WithCancel(context.Background())
	if _, err := s.Create(given, &api.CreateTaskRequest{ID: "box", Bundle: dir}); err != nil {
		t.Fatal(err)
	}
	if deleted, err := s.Delete(given, &api.DeleteRequest{ID: "box"}); err != nil || deleted.ExitStatus != killed {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	cancel()
	if _, err := s.Create(given, &api.CreateTaskRequest{ID: "box", Bundle: dir}); err == nil || len(s.sandboxes) != 0 {
		t.Errorf("a creation that was given up has left %v, %v", s.sandboxes, err)
	}
}

// TestOthers: what does not ask for a thread is containerd's, and what cannot have one gets a pause container.
func TestOthers(t *testing.T) {
	ctx := context.Background()
	s, inner, _ := newTest()
	missing := specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: "/nothing/net"}
	for id, dir := range map[string]string{"app": bundle(t, "", podNamespaces...), "broken": bundle(t, "true", missing)} {
		if _, err := s.Create(ctx, &api.CreateTaskRequest{ID: id, Bundle: dir}); err != nil {
			t.Error(err)
		}
	}
	if slices.Sort(inner.created); !slices.Equal(inner.created, []string{"app", "broken"}) || len(s.sandboxes) != 0 {
		t.Errorf("containerd's are %v, sandboxes %v", inner.created, s.sandboxes)
	}
	if _, err := s.Create(ctx, &api.CreateTaskRequest{ID: "none", Bundle: t.TempDir()}); err == nil {
		t.Error("created without a specification")
	}
}

// TestHostNamespaces: no container may join the host's processes through the sandbox of its pod.
func TestHostNamespaces(t *testing.T) {
	ctx := context.Background()
	s, inner, _ := newTest()
	s.sandboxes["box"] = &sandbox{Sandbox: &pauseless.Sandbox{TID: 77}}
	for _, kind := range []string{"pid", "user", "mnt"} {
		dir := bundle(t, "", specs.LinuxNamespace{Type: specs.PIDNamespace, Path: fmt.Sprintf("/proc/77/ns/%s", kind)})
		_, err := s.Create(ctx, &api.CreateTaskRequest{ID: kind, Bundle: dir})
		if err == nil || !strings.Contains(err.Error(), "the host's") {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if len(inner.created) != 0 {
		t.Errorf("%v were created", inner.created)
	}
}
