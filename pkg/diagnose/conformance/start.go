package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
)

// awaitStart waits until the tests have started. Pulling their image may take long; what does not heal by itself is an error.
func (r *Runner) awaitStart(ctx context.Context) error {
	began, pulls := time.Now(), time.Time{} // the first failed pull
	placed := time.Time{}                   // when the pod had a node
	for told := false; ; told = true {
		pod, err := r.look(ctx)
		if err != nil {
			return err
		}
		status := container(pod, tests)
		if status.State.Running != nil || status.State.Terminated != nil {
			return nil
		}
		trouble, final := waits(pod)
		switch {
		case trouble == nil:
			pulls = time.Time{}
		case pulls.IsZero():
			pulls = time.Now()
		}
		if trouble != nil && (final || time.Since(pulls) > pullPatience) {
			return trouble
		}
		switch {
		case pod.Spec.NodeName != "" && placed.IsZero():
			placed = time.Now()
		case pod.Spec.NodeName == "" && time.Since(began) > placePatience:
			return fmt.Errorf("no node takes the tests' pod: %s", unplaced(pod))
		case len(pod.Status.ContainerStatuses) == 0 && !placed.IsZero() && time.Since(placed) > placePatience:
			return fmt.Errorf("node %s says nothing of the tests' pod, which it was given %s ago: see whether its kubelet runs, "+
				"or cordon the node and try again", pod.Spec.NodeName, placePatience)
		}
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
			return fmt.Errorf("the tests' pod has ended before it began: %s", said(pod.Status.Reason, pod.Status.Message))
		}
		if !told {
			r.note("waiting for the pod to start; its image may have to be pulled")
		}
		if lifecycle.Sleep(ctx, poll) != nil {
			return ctx.Err()
		}
	}
}

// waits says what a container that waits is in trouble with, if it is. final trouble does not heal.
func waits(pod *corev1.Pod) (trouble error, final bool) {
	for _, status := range pod.Status.ContainerStatuses {
		w := status.State.Waiting
		if w == nil {
			continue
		}
		why := said(w.Reason, w.Message)
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable":
			return fmt.Errorf("node %s cannot pull image %s: %s. Name one that it can pull with --image, give nodes a mirror, or bring the image to "+
				"each node, with coracle images import FILE", pod.Spec.NodeName, status.Image, why), false
		case "InvalidImageName":
			return fmt.Errorf("%q is no name of an image: give --image one such as %s:v1.37.1", status.Image, Repository), true
		case "ErrImageNeverPull", "ImageInspectError", "SignatureValidationFailed":
			return fmt.Errorf("node %s does not accept image %s: %s. Name another with --image", pod.Spec.NodeName, status.Image, why), true
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return fmt.Errorf("container %s of the tests' pod does not start on node %s: %s. Is %s an image of the conformance tests?",
				status.Name, pod.Spec.NodeName, why, status.Image), false
		}
	}
	return nil, false
}

// unplaced says why the pod has no node.
func unplaced(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return said(c.Reason, c.Message)
		}
	}
	return said("", "")
}

// said is a reason and a message of the cluster in one line.
func said(reason, message string) string {
	words := slices.DeleteFunc([]string{reason, message}, func(s string) bool { return s == "" })
	text := strings.Join(strings.Fields(results.Printable(strings.Join(words, ": "))), " ")
	return cmp.Or(fmt.Sprintf("%.1000s", text), "it does not say why")
}

// container is the status of a container; empty if there is none yet.
func container(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// terminated is how a container ended; nil if it has not.
func terminated(pod *corev1.Pod, name string) *corev1.ContainerStateTerminated {
	return container(pod, name).State.Terminated
}
