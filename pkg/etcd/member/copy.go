package member

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// Beside etcd's own, the socket has two paths for the process that makes backups. They do what etcd's Snapshot and HashKV do, without making writes
// wait: each message of Snapshot takes a cleared buffer of 1 MiB (gRPC's pool has none between that and 32 KiB), and its garbage makes the
// whole control plane collect; HashKV holds back all writes while it reads the database (hashByRev in etcd's storage/mvcc/kvstore.go).
const (
	databasePath = "/coracle/database"  // GET: the database and its SHA-256
	contentsPath = "/coracle/contents/" // GET with a revision: Contents
)

func (e *Etcd) handlers() map[string]http.Handler {
	return map[string]http.Handler{databasePath: e.handler(sendDatabase), contentsPath: e.handler(sendContents)}
}

// handler answers requests with what send writes. Of an error the client sees the text if nothing was sent before, and else that the answer is cut off.
func (e *Etcd) handler(send func(context.Context, life, http.ResponseWriter, *http.Request) (begun bool, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		l, ending := life{Etcd: e, server: e.running}, e.ending
		e.mu.Unlock()
		if l.server == nil {
			http.Error(w, errNotRunning.Error(), http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		go func() { // the end waits for requests
			select {
			case <-ending:
				cancel(errors.New("etcd stops"))
				_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
			case <-ctx.Done():
			}
		}()
		if begun, err := send(ctx, l, w, r); begun && err != nil {
			panic(http.ErrAbortHandler)
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

func sendDatabase(_ context.Context, l life, w http.ResponseWriter, _ *http.Request) (begun bool, err error) {
	snapshot := l.server.Server.Backend().Snapshot()
	defer snapshot.Close()
	w.Header().Set("Content-Length", strconv.FormatInt(snapshot.Size()+sha256.Size, 10))
	sum := sha256.New()
	if _, err := snapshot.WriteTo(io.MultiWriter(w, sum)); err != nil {
		return true, err
	}
	_, err = w.Write(sum.Sum(nil))
	return true, err
}

func sendContents(ctx context.Context, l life, w http.ResponseWriter, r *http.Request) (begun bool, err error) {
	revision, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, contentsPath), 10, 64)
	if err != nil {
		return false, err
	}
	_, then, err := l.digests(ctx, revision)
	if err != nil {
		return false, err
	}
	if then == nil {
		return false, fmt.Errorf("revision %d is forgotten already: try again", revision)
	}
	return true, json.NewEncoder(w).Encode(then.contents())
}

// ask asks the running member for a path, and has its answer read.
func ask(ctx context.Context, socket, path string, read func(io.Reader) error) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd"+path, nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		return read(answer.Body)
	case http.StatusNotFound:
		return errors.New("the server that runs is of an older version than this program: restart it, or use the program of that version")
	default:
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return errors.New(strings.TrimSpace(string(text)))
	}
}

// copyDatabase writes a copy of the running member's database to a file that it makes.
func copyDatabase(ctx context.Context, socket, file string, limit *throttle.Limit) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = ask(ctx, socket, databasePath, func(database io.Reader) error {
		_, err := io.Copy(f, limit.Reader(database))
		return err
	})
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(file)
	}
	return err
}
