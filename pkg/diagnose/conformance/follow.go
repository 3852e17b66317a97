package conformance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
)

// errPodGone also means that there is another pod of the same name.
var errPodGone = errors.New("somebody has removed the tests' pod")

// look returns the pod. While the API does not answer it asks again, for a while.
func (r *Runner) look(ctx context.Context) (*corev1.Pod, error) {
	var lost, denied time.Time
	for {
		pod, err := r.api.CoreV1().Pods(namespace).Get(ctx, podName, metav1.GetOptions{})
		switch {
		case err == nil && pod.UID == r.podUID:
			return pod, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil, apierrors.IsNotFound(err):
			return nil, errPodGone
		case lost.IsZero():
			lost = time.Now()
			r.note("the API does not answer; trying again for %s: %v", patience, err)
		case time.Since(lost) > patience:
			return nil, fmt.Errorf("the API does not answer any more: %w", err)
		}
		switch {
		case !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err):
			denied = time.Time{}
		case denied.IsZero():
			denied = time.Now()
		case time.Since(denied) > denyPatience:
			return nil, fmt.Errorf("looking at the tests' pod: %w", err)
		}
		if lifecycle.Sleep(ctx, poll) != nil {
			return nil, ctx.Err()
		}
	}
}

// follow copies the tests' log to Out until they end, and returns their exit code.
func (r *Runner) follow(ctx context.Context) (code int32, err error) {
	c := copier{out: r.Out}
	for lost := false; ; {
		stream, err := r.streams.CoreV1().Pods(namespace).GetLogs(podName, c.options()).Stream(ctx)
		switch {
		case err == nil:
			c.copy(stream)
			stream.Close()
			lost = false
		case !lost && ctx.Err() == nil:
			lost = true
			r.note("the tests run on, and their log cannot be read; trying again: %v", err)
		}
		pod, err := r.look(ctx)
		if err != nil {
			return 0, err
		}
		if end := terminated(pod, tests); end != nil {
			return end.ExitCode, nil
		}
		if pod.DeletionTimestamp != nil {
			return 0, errors.New("somebody removes the tests' pod")
		}
		if pod.Status.Phase == corev1.PodFailed {
			return 0, fmt.Errorf("the tests' pod has failed: %s", said(pod.Status.Reason, pod.Status.Message))
		}
		if lifecycle.Sleep(ctx, poll) != nil {
			return 0, ctx.Err()
		}
	}
}

// copier copies a log, also over several connections.
type copier struct {
	out  io.Writer
	last time.Time // of the last line that was copied
	same int       // lines with that time
}

// options ask for what was not copied yet, and the other lines of that second.
func (c *copier) options() *corev1.PodLogOptions {
	o := &corev1.PodLogOptions{Container: tests, Follow: true, Timestamps: true}
	if !c.last.IsZero() {
		o.SinceTime = &metav1.Time{Time: c.last}
	}
	return o
}

// copy copies what is new in a stream, until it ends or breaks. Each line begins with its time.
func (c *copier) copy(stream io.Reader) {
	lines := bufio.NewReaderSize(stream, 64<<10)
	from, known, repeated := c.last, c.same, 0
	for begins, skip := true, false; ; {
		piece, err := lines.ReadSlice('\n') // of a long line a part
		stamp, text, _ := bytes.Cut(piece, []byte(" "))
		if at, bad := time.Parse(time.RFC3339Nano, string(stamp)); begins && bad == nil {
			if at.Equal(from) {
				repeated++
			}
			skip = at.Before(from) || at.Equal(from) && repeated <= known
			piece = text
			if !skip {
				c.remember(at)
			}
		}
		if !skip {
			_, _ = io.WriteString(c.out, results.Printable(string(piece)))
		}
		begins = err == nil
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (c *copier) remember(at time.Time) {
	switch {
	case at.After(c.last):
		c.last, c.same = at, 1
	case at.Equal(c.last):
		c.same++
	}
}
