package member

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// TestCopyEnds: a slow copy ends when nobody waits for it and when the member stops, and leaves no file.
func TestCopyEnds(t *testing.T) {
	for _, why := range []string{"asked by nobody", "stopped"} {
		t.Run(why, func(t *testing.T) {
			e := newEtcd(t)
			stop := mustRun(t, e)
			put(t, e, "a", strings.Repeat("x", 1<<20))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			file := filepath.Join(t.TempDir(), "copy")
			limit, end := throttle.New(100 << 10) // it takes more than ten seconds
			defer end()
			ended := make(chan error)
			go func() {
				_, err := Save(ctx, e.Socket, file, limit)
				ended <- err
			}()
			for begun := false; !begun; <-time.After(time.Millisecond) {
				info, err := os.Stat(file)
				begun = err == nil && info.Size() > 0
			}
			began := time.Now()
			if why == "stopped" {
				stop()
			} else {
				defer stop()
				cancel()
			}
			if err := <-ended; err == nil || why != "stopped" && !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
			for _, err := os.Stat(file); err == nil; _, err = os.Stat(file) { // the member may notice later than the client
				<-time.After(time.Millisecond)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestCopyToAnother: a file that exists stays as it is.
func TestCopyToAnother(t *testing.T) {
	e := newEtcd(t)
	defer mustRun(t, e)()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("a user's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(t.Context(), e.Socket, file, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	if text, err := os.ReadFile(file); string(text) != "a user's" {
		t.Errorf("the file now says %q, %v", text, err)
	}
}

// TestNoCopyByNetwork: a browser, which can read what a port of this machine answers, gets no database.
func TestNoCopyByNetwork(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + free.Addr().String()
	free.Close()
	e := newEtcd(t)
	e.Args = []string{"listen-client-urls=" + address}
	defer mustRun(t, e)()
	for path, want := range map[string]int{"/version": http.StatusOK, databasePath: http.StatusNotFound} {
		answer, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}
