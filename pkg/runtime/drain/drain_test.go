package drain

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// runtime is a CRI server that writes down what it is asked.
type runtime struct {
	cri.UnimplementedRuntimeServiceServer
	mu    sync.Mutex
	calls []string
	fail  string // the sandbox that cannot be stopped
}

func (r *runtime) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

func (r *runtime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{
		{Id: "p1", Metadata: &cri.PodSandboxMetadata{Namespace: "default", Name: "web"}, Annotations: map[string]string{ // more than gRPC's clients take
			"large": strings.Repeat("x", 5<<20)}},
		{Id: "p2", Metadata: &cri.PodSandboxMetadata{Namespace: "default", Name: "db"}},
	}}, nil
}

func (r *runtime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: []*cri.Container{
		{Id: "c1", PodSandboxId: "p1", Annotations: map[string]string{gracePeriod: "5"}},
		{Id: "c2", PodSandboxId: "p2", Annotations: map[string]string{gracePeriod: "3600"}},
	}}, nil
}

func (r *runtime) StopContainer(_ context.Context, in *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	r.note("container " + in.ContainerId + " " + (time.Duration(in.Timeout) * time.Second).String())
	return &cri.StopContainerResponse{}, nil
}

func (r *runtime) StopPodSandbox(_ context.Context, in *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	r.note("pod " + in.PodSandboxId)
	if in.PodSandboxId == r.fail {
		return nil, errors.New("stuck")
	}
	return &cri.StopPodSandboxResponse{}, nil
}

// serve returns the socket at which r answers.
func (r *runtime) serve(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, r)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return socket
}

func TestRun(t *testing.T) {
	for name, tt := range map[string]struct{ fail, err string }{
		"all stop":   {},
		"one cannot": {fail: "p2", err: "stopping pod default/db: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runtime{fail: tt.fail}
			socket := r.serve(t)

			ctx, stop := context.WithCancel(t.Context())
			stop() // the group asks it to stop: now it works
			err := Drain{Socket: socket, Timeout: 20 * time.Second}.Run(ctx, func() {})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got error %v", err)
			}
			slices.Sort(r.calls)
			want := "container c1 5s, container c2 20s, pod p1, pod p2"
			if got := strings.Join(r.calls, ", "); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}

// TestFailure: pods go on when coracle starts again because one of its parts has failed.
func TestFailure(t *testing.T) {
	var g lifecycle.Group
	r := &runtime{}
	drain := g.Add("drain", Drain{Socket: r.serve(t), Timeout: time.Hour})
	g.Add("clock", failing{}, drain) // it fails when drain runs
	if err := g.Run(t.Context()); err == nil {
		t.Error("the group has not failed")
	}
	if len(r.calls) > 0 {
		t.Errorf("pods were stopped: %q", r.calls)
	}
}

type failing struct{}

// Run implements lifecycle.Component.
func (failing) Run(context.Context, func()) error { return errors.New("the clock was set") }
