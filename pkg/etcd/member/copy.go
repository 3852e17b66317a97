package member

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// databasePath is a path of the HTTP server on the socket, beside etcd's own: GET answers with the database and its SHA-256. It is for the process that
// makes backups. etcd's Snapshot does the same by gRPC, and makes writes wait: each of its messages takes a cleared buffer of 1 MiB (gRPC's pool has
// none between that and 32 KiB), and its garbage makes the whole control plane collect.
const databasePath = "/coracle/database"

func (e *Etcd) sendDatabase(w http.ResponseWriter, r *http.Request) {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); !ok || at.Network() != "unix" { // but one of --etcd-arg listen-client-urls
		http.NotFound(w, r)
		return
	}
	e.mu.Lock()
	server, ending := e.running, e.ending
	e.mu.Unlock()
	if server == nil {
		http.Error(w, errNotRunning.Error(), http.StatusServiceUnavailable)
		return
	}
	e.copying.RLock()
	defer e.copying.RUnlock()
	go func() { // the end waits for requests, and for those who read the database
		select {
		case <-ending:
		case <-server.Server.StoppingNotify():
		case <-r.Context().Done():
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	}()
	snapshot := server.Server.Backend().Snapshot()
	defer snapshot.Close()
	w.Header().Set("Content-Length", strconv.FormatInt(snapshot.Size()+sha256.Size, 10))
	sum := sha256.New()
	if _, err := snapshot.WriteTo(io.MultiWriter(w, sum)); err != nil {
		panic(http.ErrAbortHandler) // the client sees that the answer is cut off
	}
	_, _ = w.Write(sum.Sum(nil))
}

// copyDatabase writes a copy of the running member's database to a file that it makes.
func copyDatabase(ctx context.Context, socket, file string, limit *throttle.Limit) (err error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd"+databasePath, nil)
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
	case http.StatusNotFound:
		return errors.New("the server that runs is of an older version than this program: restart it, or use the program of that version")
	default:
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return errors.New(strings.TrimSpace(string(text)))
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, limit.Reader(answer.Body))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("etcd has stopped meanwhile: try again")
	}
	if err == nil {
		err = checkSum(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(file)
	}
	return err
}

// checkSum compares a file with the SHA-256 at its end.
func checkSum(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at, sum, want := info.Size()-sha256.Size, sha256.New(), make([]byte, sha256.Size)
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, at)); err != nil {
		return err
	}
	if _, err := f.ReadAt(want, at); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return fmt.Errorf("%s is not what was written: the disk or the memory has changed it", f.Name())
	}
	return nil
}

// contentsOf returns what a database holds at its last revision.
func contentsOf(file string) (c Contents, err error) {
	scan, latest := newScanner(), map[[2]uint64]uint32{}
	err = reading(file, func() error {
		db, err := bolt.Open(file, 0o400, &bolt.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		return errors.Join(db.View(func(tx *bolt.Tx) error {
			keys := tx.Bucket(schema.Key.Name())
			if keys == nil {
				return errors.New("it is not etcd's")
			}
			return keys.ForEach(func(revision, value []byte) error {
				c.Revision = mvcc.BytesToRev(revision).Main
				return scan.add(revision, value, latest)
			})
		}), db.Close())
	})
	objects, sum := total(latest)
	return Contents{c.Revision, int64(objects), sum}, err
}
