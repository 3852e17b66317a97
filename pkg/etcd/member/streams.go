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
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// holdTimeout is how long a peer may take to connect again. It tries each 100 ms. After a second without messages a leader takes itself for cut off.
const holdTimeout = time.Second

// end closes a peer's connection. A stream of messages goes on when the peer has connected again: rafthttp would lose some, and if one of them is the message with
// which a follower passes a change to the leader, the client waits for seven seconds and does not learn whether the change was made.
func (s *stranger) end(peer *tls.Conn) {
	if stream := s.stream.Load(); stream != nil {
		stream.end(peer)
		return
	}
	_ = peer.Close()
}

// stream is a response with which raft's messages are sent to a peer, all but the entries of the log, which raft sends again itself.
type stream struct {
	done chan struct{} // closed when etcd has ended the stream

	mu                  sync.Mutex
	http.ResponseWriter // on the peer's last connection
	unflushed           bool
	ending              *tls.Conn // to be closed when everything is flushed
	ended               time.Time // when it was closed
	held                []byte    // what was written since
}

type strangerKey struct{}

// withStranger adds a connection to the context of its requests.
func withStranger(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		return context.WithValue(ctx, strangerKey{}, secure.NetConn())
	}
	return ctx
}

// withStreams serves requests for streams as type stream.
func (d *door) withStreams(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, ok := r.Context().Value(strangerKey{}).(*stranger)
		if !ok || path.Dir(r.URL.Path) != rafthttp.RaftStreamPrefix+"/message" {
			next.ServeHTTP(w, r)
			return
		}
		if former, ok := d.streams.Load(r.URL.Path); ok {
			if s := former.(*stream); s.resume(w) {
				from.stream.Store(s)
				<-s.done
				return
			}
		}
		s := &stream{ResponseWriter: w, done: make(chan struct{})}
		defer close(s.done)
		d.streams.Store(r.URL.Path, s)
		from.stream.Store(s)
		next.ServeHTTP(s, r)
	})
}

// resume continues a stream whose connection was closed on another one, and reports whether it could.
func (s *stream) resume(w http.ResponseWriter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended.IsZero() || time.Since(s.ended) > holdTimeout {
		return false
	}
	maps.Copy(w.Header(), s.Header())
	_, err := w.Write(s.held)
	if err != nil {
		return false
	}
	w.(http.Flusher).Flush()
	s.ResponseWriter, s.ending, s.ended, s.held = w, nil, time.Time{}, nil
	return true
}

// end closes the stream's connection as soon as nothing is written to it.
func (s *stream) end(peer *tls.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = peer
	s.close()
}

// close closes the connection if it is to end and everything is flushed. mu is locked.
func (s *stream) close() {
	if s.ending != nil && !s.unflushed && s.ended.IsZero() {
		s.ended = time.Now()
		_ = s.ending.Close()
	}
}

var errFormer = errors.New("the peer's certificate is of a former authority")

// Write sends a part of a message, or holds it.
func (s *stream) Write(part []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended.IsZero():
		s.unflushed = true
		return s.ResponseWriter.Write(part)
	case time.Since(s.ended) > holdTimeout:
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
		s.unflushed = false
		s.close()
	}
}
