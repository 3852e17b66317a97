package attempts

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// machine is a container runtime.
type machine struct{ containers []*cri.Container }

func (m *machine) ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: slices.Clone(m.containers)}, nil
}

func (m *machine) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest, _ ...grpc.CallOption) (*cri.RemoveContainerResponse, error) {
	m.containers = slices.DeleteFunc(m.containers, func(c *cri.Container) bool { return c.Id == r.ContainerId })
	return nil, nil
}

func (m *machine) ids() (ids []string) {
	for _, c := range m.containers {
		ids = append(ids, c.Id)
	}
	return ids
}

func TestPass(t *testing.T) {
	now := time.Date(2026, time.November, 24, 0, 0, 0, 0, time.UTC)
	container := func(id, pod, name string, attempt uint32, created time.Duration, running bool) *cri.Container {
		state := cri.ContainerState_CONTAINER_EXITED
		if running {
			state = cri.ContainerState_CONTAINER_RUNNING
		}
		return &cri.Container{Id: id, Labels: map[string]string{podUID: pod}, Metadata: &cri.ContainerMetadata{Name: name, Attempt: attempt},
			CreatedAt: now.Add(created).UnixNano(), State: state}
	}
	for _, c := range []struct {
		name       string
		containers []*cri.Container
		left       []string
		early      bool
	}{
		{"in order", []*cri.Container{
			container("second", "p", "app", 1, -time.Minute, true), container("first", "p", "app", 0, -time.Hour, false),
		}, []string{"second", "first"}, false},
		{"out of order", []*cri.Container{
			container("first", "p", "app", 0, time.Hour, false), container("second", "p", "app", 1, -time.Minute, true),
		}, []string{"second"}, true},
		{"out of order, when the clock is right again", []*cri.Container{
			container("first", "p", "app", 0, -time.Hour, false), container("second", "p", "app", 1, -56*365*24*time.Hour, true),
		}, []string{"second"}, false},
		{"not ended yet", []*cri.Container{
			container("first", "p", "app", 0, time.Hour, true), container("second", "p", "app", 1, -time.Minute, true),
		}, []string{"first", "second"}, true},
		{"of different containers and pods", []*cri.Container{
			container("one", "p", "app", 0, time.Hour, false), container("two", "p", "sidecar", 1, -time.Minute, true),
			container("three", "q", "app", 1, -time.Minute, true),
		}, []string{"one", "two", "three"}, true},
		{"alone", []*cri.Container{container("one", "p", "app", 0, time.Hour, false)}, []string{"one"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &machine{c.containers}
			early, err := pass(t.Context(), m, now)
			if err != nil || early != c.early || !slices.Equal(m.ids(), c.left) {
				t.Errorf("%v are left, and some are of the future: %t (%v)", m.ids(), early, err)
			}
		})
	}
}
