package taskstats

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/runtime"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/coracle-dev/coracle/pkg/runtime/sharedshims"
)

// store has containers by their ids.
type store struct {
	containers.Store
	has map[string]containers.Container
}

func (s store) Get(_ context.Context, id string) (containers.Container, error) {
	c, ok := s.has[id]
	if !ok {
		return c, errdefs.ErrNotFound
	}
	return c, nil
}

// tasks is containerd's plugin with tasks whose shims count how often they are asked.
type tasks struct {
	sharedshims.TaskManager
	ids   []string
	asked map[string]int
}

func (t *tasks) Tasks(context.Context, bool) (list []runtime.Task, err error) {
	for _, id := range t.ids {
		list = append(list, asked{t: t, id: id})
	}
	return list, nil
}

type asked struct {
	runtime.Task
	t  *tasks
	id string
}

func (a asked) ID() string { return a.id }

func (asked) Namespace() string { return "k8s.io" }

func (a asked) Stats(context.Context) (*anypb.Any, error) {
	a.t.asked[a.id]++
	return &anypb.Any{TypeUrl: "shim"}, nil
}

func container(runtimeName, cgroup string) containers.Container {
	spec, _ := json.Marshal(specs.Spec{Linux: &specs.Linux{CgroupsPath: cgroup}})
	return containers.Container{Runtime: containers.RuntimeInfo{Name: runtimeName}, Spec: &anypb.Any{Value: spec}}
}

// TestStats asks only the shims that know more than the container's control group.
func TestStats(t *testing.T) {
	ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
	inner := &tasks{ids: []string{"own", "foreign", "no-path", "no-cgroup", "unknown"}, asked: map[string]int{}}
	r := New(inner, store{has: map[string]containers.Container{
		"own":       container(runc, "/"),
		"foreign":   container("io.containerd.runsc.v1", "/"),
		"no-path":   container(runc, ""),
		"no-cgroup": container(runc, "/coracle-test-nothing"),
	}})
	for range 2 {
		list, err := r.Tasks(ctx, false)
		if err != nil || len(list) != len(inner.ids) {
			t.Fatalf("%d tasks, %v", len(list), err)
		}
		for _, task := range list {
			stats, err := task.Stats(ctx)
			if task.ID() != "own" {
				if err != nil || stats.TypeUrl != "shim" {
					t.Errorf("%s: %v, %v", task.ID(), stats, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := typeurl.UnmarshalAny(stats); err != nil {
				t.Errorf("%s: %v", task.ID(), err)
			}
		}
	}
	for id, want := range map[string]int{"own": 0, "foreign": 2, "no-path": 2, "no-cgroup": 2, "unknown": 2} {
		if inner.asked[id] != want {
			t.Errorf("the shim of %s was asked %d times, want %d", id, inner.asked[id], want)
		}
	}
	inner.ids = []string{"foreign"}
	if _, err := r.Tasks(namespaces.WithNamespace(t.Context(), "other"), false); err != nil {
		t.Fatal(err)
	}
	if len(r.readers) != 3 { // own, foreign, no-path
		t.Errorf("%d containers are known after a list of other ones", len(r.readers))
	}
	if _, err := r.Tasks(ctx, false); err != nil {
		t.Fatal(err)
	}
	if _, left := r.readers[key{"k8s.io", "foreign"}]; len(r.readers) != 1 || !left {
		t.Errorf("%d containers are known, of one that is left", len(r.readers))
	}
}
