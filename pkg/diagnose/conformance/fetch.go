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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
)

// The most bytes of the files that are taken out of the pod, some ten times what a whole run writes.
const (
	mostLog   = 512 << 20
	mostJUnit = 64 << 20
	mostSaid  = 4 << 10 // of what a command in the pod complains about
	attempts  = 3
)

// fetch takes the results out of the pod.
func (r *Runner) fetch(ctx context.Context) error {
	for _, f := range []struct {
		name string
		most int64
	}{{results.Log, mostLog}, {results.JUnit, mostJUnit}} {
		path := filepath.Join(r.run.Dir(r.Output), f.name)
		err := atomicfile.WriteWith(path, 0o644, func(file *os.File) (err error) {
			for try := 1; ; try++ {
				if err = r.read(ctx, f.name, file, f.most); err == nil || try == attempts || lifecycle.Sleep(ctx, poll) != nil {
					return err
				}
				if _, err := file.Seek(0, io.SeekStart); err != nil {
					return err
				}
				if err := file.Truncate(0); err != nil {
					return err
				}
			}
		})
		if err != nil {
			return fmt.Errorf("taking %s out of the pod: %w", f.name, err)
		}
	}
	return nil
}

// read copies a file of the results, of at most so many bytes.
func (r *Runner) read(ctx context.Context, name string, to io.Writer, most int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
	exec, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	var complaint bytes.Buffer
	data := &bounded{to: to, most: most, stop: cancel}
	notes := &bounded{to: &complaint, most: mostSaid, stop: cancel}
	err = exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: data, Stderr: notes})
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
