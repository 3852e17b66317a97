package dataplane

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A client of HTTP/2 that asks and takes its requests back at once has the gateway work for nothing, as often as it can write. So a connection is read
// no further while more of its requests were taken back than freeResets, besides one for each that was answered, and one for each resetPause.
const (
	freeResets = 100
	resetPause = 10 * time.Millisecond
)

// resets are the requests of a connection that its client has taken back.
type resets struct {
	rest func(until time.Time) // has the connection be read no further

	mu  sync.Mutex
	due time.Time // when all of them would be in their time
}

// count counts a request that has ended.
func (r *resets) count(now time.Time, reset bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due.Before(now) {
		r.due = now
	}
	if !reset {
		r.due = r.due.Add(-resetPause)
		return
	}
	r.due = r.due.Add(resetPause)
	if until := r.due.Add(-freeResets * resetPause); until.After(now) {
		r.rest(until)
	}
}

// resetsKey is the key of a connection's resets in its context.
type resetsKey struct{}

// Provision implements caddy.Provisioner.
func (r *router) Provision(ctx caddy.Context) error {
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterConnContext(func(ctx context.Context, conn net.Conn) context.Context {
			if rest := restOf(conn); rest != nil {
				return context.WithValue(ctx, resetsKey{}, &resets{rest: rest})
			}
			return ctx
		})
	}
	return nil
}

// restOf returns what has a connection of package listening be read no further, or nil for another connection.
func restOf(conn net.Conn) func(until time.Time) {
	for {
		switch now := conn.(type) {
		case interface{ Rest(until time.Time) }:
			return now.Rest
		case interface{ NetConn() net.Conn }: // one with TLS, or of which something was read
			conn = now.NetConn()
		default:
			return nil
		}
	}
}

// countReset counts a request that has ended.
func countReset(req *http.Request) {
	if of, ok := req.Context().Value(resetsKey{}).(*resets); ok && req.ProtoMajor == 2 {
		of.count(time.Now(), req.Context().Err() != nil)
	}
}
