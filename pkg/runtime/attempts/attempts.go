// Package attempts keeps the containers of pods in order when the clock is set back. The kubelet takes the container that was created last
// for the present one. After the clock was set back, one from before looks newer than its successor. When it has ended, the kubelet starts
// its successor again and again, and fails, because that is there. So the former one is removed here.
package attempts

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/clock"
	"github.com/coracle-dev/coracle/pkg/core/crisocket"
)

// Attempts is a component that removes ended containers which look newer than their successors. It must depend on containerd.
type Attempts struct {
	Socket string // CRI's
}

// pause is the time between two looks while there are containers that were created in the future, or after an error.
const pause = 5 * time.Second

// podUID is the label in which the kubelet keeps the UID of a container's pod.
const podUID = "io.kubernetes.pod.uid"

// runtime is what is used of CRI.
type runtime interface {
	ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error)
	RemoveContainer(context.Context, *cri.RemoveContainerRequest, ...grpc.CallOption) (*cri.RemoveContainerResponse, error)
}

// Run looks at once, and when the clock is set; and often while there are containers that were created in the future. It is ready at once.
func (a Attempts) Run(ctx context.Context, ready func()) error {
	conn, err := crisocket.Dial(a.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	set, _ := clock.Watch(ctx) // without it, the next start looks again
	ready()
	for client := cri.NewRuntimeServiceClient(conn); ; {
		early, err := pass(ctx, client, time.Now())
		if err != nil && ctx.Err() == nil {
			logrus.WithField("component", "attempts").WithError(err).Warn("looking for containers that are out of order; trying again")
		}
		var again <-chan time.Time
		if early || err != nil {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-set:
		}
	}
}

// pass removes the containers that have ended and have a successor with an earlier time. early reports whether there is a container that was
// created in the future, whose successor would have one.
func pass(ctx context.Context, client runtime, now time.Time) (early bool, err error) {
	list, err := client.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return false, fmt.Errorf("listing containers: %w", err)
	}
	type place struct{ pod, name string }
	last := map[place]*cri.Container{}
	for _, c := range list.Containers {
		early = early || c.CreatedAt > now.UnixNano()
		p := place{c.Labels[podUID], c.Metadata.GetName()}
		if before := last[p]; before == nil || before.Metadata.GetAttempt() < c.Metadata.GetAttempt() {
			last[p] = c
		}
	}
	for _, c := range list.Containers {
		next := last[place{c.Labels[podUID], c.Metadata.GetName()}]
		if next.Metadata.GetAttempt() <= c.Metadata.GetAttempt() || next.CreatedAt > c.CreatedAt || c.State != cri.ContainerState_CONTAINER_EXITED {
			continue
		}
		if _, err := client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: c.Id}); err != nil {
			return early, fmt.Errorf("removing container %s of before the clock was set back: %w", c.Metadata.GetName(), err)
		}
	}
	return early, nil
}
