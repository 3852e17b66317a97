package member

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// holdTimeout is how long a peer may take to connect again. It tries each 100 ms, but on a busy machine a connection takes a second. The requests that rafthttp
// sends when it has no stream would need a connection too.
const holdTimeout = 5 * time.Second

// flushTimeout is how long a connection that is to be closed may be busy with what was written before.
const flushTimeout = 500 * time.Millisecond

// maxHeld is how much is held for a peer meanwhile, in bytes.
const maxHeld = 8 << 20

// end closes a peer's connection. A stream of messages goes on when the peer has connected again: rafthttp would lose some, and if one of them is the message with
// which a follower passes a change to the leader, the client waits for seven seconds and does not learn whether the change was made.
func (d *door) end(peer *tls.Conn) {
	time.AfterFunc(flushTimeout, func() { _ = peer.Close() }) // perhaps nothing is flushed any more
	carries := false
	for _, s := range d.streams.Range {
		if s := s.(*stream); s.conn.Load() == peer {
			carries = true
			s.end(peer)
		}
	}
	if !carries {
		_ = peer.Close()
	}
}

// stream is a response with which raft's messages are sent to a peer, all but the entries of the log, which raft sends again itself.
type stream struct {
	done chan struct{} // closed when etcd has ended the stream

	conn atomic.Pointer[tls.Conn] // the peer's last connection

	mu                  sync.Mutex
	http.ResponseWriter           // on conn
	unflushed           bool      // something was written since the last Flush: perhaps a part of a message
	ending              bool      // conn is to be closed when nothing is unflushed
	ended               time.Time // when it was closed
	held                []byte    // what was written since
}

type connKey struct{}

// withConn adds a connection to the context of its requests.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// withStreams serves requests for streams as type stream.
func (d *door) withStreams(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(connKey{}).(*tls.Conn)
		if !ok || r.Method != http.MethodGet || path.Dir(r.URL.Path) != rafthttp.RaftStreamPrefix+"/message" {
			next.ServeHTTP(w, r)
			return
		}
		if former, ok := d.streams.Load(r.URL.Path); ok {
			if s := former.(*stream); s.resume(w, conn) {
				<-s.done
				return
			}
		}
		s := &stream{ResponseWriter: w, done: make(chan struct{})}
		s.conn.Store(conn)
		d.streams.Store(r.URL.Path, s)
		defer func() {
			d.streams.CompareAndDelete(r.URL.Path, s)
			close(s.done)
		}()
		next.ServeHTTP(s, r)
	})
}

// resume continues a stream whose connection was closed on another one, and reports whether it could.
func (s *stream) resume(w http.ResponseWriter, conn *tls.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() || time.Since(s.ended) > holdTimeout {
		return false
	}
	maps.Copy(w.Header(), s.Header())
	if _, err := w.Write(s.held); err != nil {
		return false
	}
	w.(http.Flusher).Flush()
	s.ResponseWriter, s.ending, s.ended, s.held = w, false, time.Time{}, nil
	s.conn.Store(conn)
	return true
}

// end closes a connection as soon as nothing is written to it, unless the stream has gone on elsewhere.
func (s *stream) end(peer *tls.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.Load() == peer {
		s.ending = true
		s.close()
	}
}

// close closes the connection if it is to end and nothing is unflushed. mu is locked.
func (s *stream) close() {
	if s.ending && !s.unflushed && s.ended.IsZero() {
		s.ended = time.Now()
		_ = s.conn.Load().Close()
	}
}

var errFormer = errors.New("the peer's certificate is of a former authority")

// Write sends a part of a message, or holds it.
func (s *stream) Write(part []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unflushed = true
	switch {
	case s.ended.IsZero():
		return s.ResponseWriter.Write(part)
	case time.Since(s.ended) > holdTimeout || len(s.held) > maxHeld:
		return 0, errFormer
	}
	s.held = append(s.held, part...)
	return len(part), nil
}

// Flush sends what was written.
func (s *stream) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() {
		s.ResponseWriter.(http.Flusher).Flush()
	}
	s.unflushed = false
	s.close()
}
