// Package drain stops all pods when coracle stops, if that is configured. By default pods keep running.
package drain

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-dev/coracle/pkg/core/crisocket"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Drain stops pods when it is stopped. The kubelet must depend on Drain, so that it stops first and does not start the pods again, and
// Drain must depend on containerd.
type Drain struct {
	Socket  string // CRI's
	Timeout time.Duration
}

// gracePeriod is the annotation in which the kubelet keeps a pod's terminationGracePeriodSeconds.
const gracePeriod = "io.kubernetes.pod.terminationGracePeriod"

// Run is ready at once. When coracle is asked to stop, it stops all pods in parallel; after a failure, coracle starts again, and pods go on. Each container has its pod's grace period, but at most
// Timeout. preStop hooks do not run, because the kubelet runs them.
func (d Drain) Run(ctx context.Context, ready func()) error {
	ready()
	<-ctx.Done()
	if lifecycle.Failure(ctx) != nil {
		return nil
	}
	conn, err := crisocket.Dial(d.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.Timeout+5*time.Second)
	defer cancel()
	return d.stopAll(ctx, cri.NewRuntimeServiceClient(conn))
}

// stopAll stops every pod sandbox with its containers.
func (d Drain) stopAll(ctx context.Context, client cri.RuntimeServiceClient) error {
	ready := &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}}
	pods, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: ready})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	running := &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	containers, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: running})
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	byPod := map[string][]*cri.Container{}
	for _, c := range containers.Containers {
		byPod[c.PodSandboxId] = append(byPod[c.PodSandboxId], c)
	}
	began := time.Now()
	errs := make([]error, len(pods.Items))
	var all sync.WaitGroup
	for i, pod := range pods.Items {
		all.Go(func() { errs[i] = d.stop(ctx, client, pod, byPod[pod.Id]) })
	}
	all.Wait()
	logrus.WithField("component", "drain").WithField("took", time.Since(began).Round(time.Millisecond)).
		Infof("stopped %d pods", len(pods.Items))
	return errors.Join(errs...)
}

// stop stops a pod's containers in parallel, and then its sandbox.
func (d Drain) stop(ctx context.Context, client cri.RuntimeServiceClient, pod *cri.PodSandbox, containers []*cri.Container) error {
	errs := make([]error, len(containers)+1)
	var all sync.WaitGroup
	for i, c := range containers {
		all.Go(func() {
			_, err := client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.Id, Timeout: d.grace(c)})
			errs[i] = err
		})
	}
	all.Wait()
	_, errs[len(containers)] = client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.Id})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping pod %s/%s: %w", pod.Metadata.GetNamespace(), pod.Metadata.GetName(), err)
	}
	return nil
}

// grace returns a container's grace period in seconds.
func (d Drain) grace(c *cri.Container) int64 {
	limit := int64(d.Timeout / time.Second)
	seconds, err := strconv.ParseInt(c.Annotations[gracePeriod], 10, 64)
	if err != nil || seconds > limit {
		return limit
	}
	return max(seconds, 0)
}
