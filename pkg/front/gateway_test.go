package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// TestRunWhile: what is run comes and goes with a file, and comes again after it gave up when the file changes.
func TestRunWhile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := entries(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	put := func() {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", nil, 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	started, stopped, fail := make(chan struct{}), make(chan struct{}), make(chan error)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runWhile(ctx, changes, func() bool { _, err := os.Stat(file); return err == nil }, func(life context.Context) error {
			started <- struct{}{}
			select {
			case err := <-fail:
				return err
			case <-life.Done():
				stopped <- struct{}{}
				return nil
			}
		})
	}()
	await := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(10 * time.Second):
			t.Fatalf("not %s", what)
		}
	}
	put()
	await("started", started)
	put() // a change is not a start
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	await("stopped", stopped)
	put()
	await("started again", started)
	fail <- errors.New("it gives up")
	put()
	await("started after it gave up", started)
	cancel()
	await("stopped at the end", stopped)
	await("over", ended)
}

// TestPutSocket: a process that has become ready reads the configuration once more, as the control plane may have told its predecessor of the last one.
func TestPutSocket(t *testing.T) {
	dir := gateway.Dir(t.TempDir())
	l, err := net.Listen("unix", dir.NextSocket())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan string, 10)
	child := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		fmt.Fprint(w, "{}")
	})}
	defer child.Close()
	go func() { _ = child.Serve(l) }()
	changed := putSocket(dir)
	changed([]state.Child{{Name: gateway.Program, State: supervise.Starting}})
	if dir.Alive(t.Context()) {
		t.Error("the socket is in place before the process is ready")
	}
	for range 2 { // another event is no reason to apply again
		changed([]state.Child{{Name: gateway.Program, State: supervise.Ready}})
	}
	select {
	case got := <-asked:
		if got != "POST "+gateway.ApplyPath {
			t.Errorf("the process was asked %q", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the process was not asked to apply")
	}
	if !dir.Alive(t.Context()) {
		t.Error("the socket is not in place")
	}
	if got := <-asked; got != "GET "+gateway.AlivePath {
		t.Errorf("the process was asked %q besides", got)
	}
}

// TestRunsAgain: what has failed, as when memory was short, is tried again without a change.
func TestRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began, runs := time.Now(), 0
		runWhile(ctx, nil, func() bool { return true }, func(context.Context) error {
			if runs++; runs == 3 {
				cancel()
				return nil
			}
			return errors.New("no memory")
		})
		if took := time.Since(began); runs != 3 || took != 2*retryGateway {
			t.Errorf("%d runs in %s", runs, took)
		}
	})
}
