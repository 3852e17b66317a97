package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
)

// The most bytes of the files that are taken out of the pod, some ten times what a whole run writes.
const (
	mostLog   = 512 << 20
	mostJUnit = 64 << 20
	mostSaid  = 4 << 10 // of what a command in the pod complains about
)

// unsaved is an error after which the pod still has the only copy of the results.
type unsaved struct{ error }

// fetch takes the results out of the pod.
func (r *Runner) fetch(ctx context.Context) error {
	for _, f := range []struct {
		name string
		most int64
	}{{results.Log, mostLog}, {results.JUnit, mostJUnit}} {
		path := filepath.Join(r.run.Dir(r.Output), f.name)
		err := atomicfile.WriteWith(path, 0o644, func(file *os.File) error { return r.save(ctx, f.name, file, f.most) })
		if err == nil {
			continue
		}
		err = fmt.Errorf("taking %s out of the pod: %w", f.name, err)
		if missing := new(exec.CodeExitError); errors.As(err, missing) || errors.Is(err, errPodGone) {
			return err
		}
		return unsaved{err}
	}
	return nil
}

// save copies a file of the results. While it cannot be read, it tries again for a while.
func (r *Runner) save(ctx context.Context, name string, file *os.File, most int64) error {
	for lost := (time.Time{}); ; {
		reading, cancel := context.WithCancel(ctx)
		to := &bounded{to: file, most: most, stop: cancel}
		err := r.read(reading, name, to)
		cancel()
		missing := new(exec.CodeExitError)
		switch {
		case err == nil, ctx.Err() != nil, to.err != nil, errors.As(err, missing):
			return err
		case lost.IsZero():
			lost = time.Now()
			r.note("%s cannot be read; trying again for %s: %v", name, patience, err)
		case time.Since(lost) > patience:
			return err
		}
		if _, err := r.look(ctx); err != nil {
			return err
		}
		if lifecycle.Sleep(ctx, poll) != nil {
			return ctx.Err()
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := file.Truncate(0); err != nil {
			return err
		}
	}
}

// readByExec copies a file of the results.
func (r *Runner) readByExec(ctx context.Context, name string, data *bounded) error {
	// The file's size comes first, on the other stream: a connection may break without an error.
	script := `wc -c <"$0" >&2 && exec cat "$0"`
	request := r.streams.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(podName).SubResource("exec").VersionedParams(
		&corev1.PodExecOptions{Container: keeper, Command: []string{"/bin/sh", "-c", script, resultsDir + "/" + name}, Stdout: true, Stderr: true},
		scheme.ParameterCodec)
	socket, err := remotecommand.NewWebSocketExecutor(r.Config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(r.Config, "POST", request.URL())
	if err != nil {
		return err
	}
	command, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	var complaint bytes.Buffer
	notes := &bounded{to: &complaint, most: mostSaid, stop: data.stop}
	err = command.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: data, Stderr: notes})
	if broken := errors.Join(data.err, notes.err); broken != nil {
		return broken
	}
	text := strings.TrimSpace(results.Printable(complaint.String()))
	if err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	if size, err := strconv.ParseInt(text, 10, 64); err != nil || size != data.n {
		return fmt.Errorf("got %d bytes of a file of %.80s", data.n, text)
	}
	return nil
}

// bounded passes on at most so many bytes, and stops the transfer if there are more, or if they cannot be written.
type bounded struct {
	to      io.Writer
	n, most int64
	err     error
	stop    func()
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.n += int64(len(p)); b.n > b.most {
		b.err = fmt.Errorf("it is longer than %d bytes, the most that is taken", b.most)
	} else {
		_, b.err = b.to.Write(p)
	}
	if b.err != nil {
		b.stop()
		return 0, b.err
	}
	return len(p), nil
}
