package addressvote

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// Handler answers a node's Beats, a JSON object for each, as long as the request lasts. who returns the authenticated node of a
// request; server reports whether a node is a server of the cluster; starting answers while the server does not vote yet.
func (v *Voter) Handler(who func(*http.Request) (string, error), server func(context.Context, string) bool, refuse func(w http.ResponseWriter, status int, sentence string), starting http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node, err := who(r)
		switch {
		case err != nil:
			refuse(w, http.StatusForbidden, err.Error())
			return
		case r.ProtoMajor < 2:
			refuse(w, http.StatusHTTPVersionNotSupported, "beats need HTTP/2")
			return
		case !v.Serves():
			starting(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context()) // it ends too when the node's certificate is revoked
		defer cancel()
		conn := v.Connect(node, len(v.vips) > 0 && server(ctx, node), cancel)
		defer conn.Close()
		if len(v.vips) > 0 && !conn.server {
			go conn.ask(ctx, server)
		}
		flush := http.NewResponseController(w).Flush
		if flush() != nil { // the headers tell the node that it is served
			return
		}
		var pace pace
		beats := read(ctx, r.Body)
		answers := json.NewEncoder(w)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(Grace): // it is silent, or cut off
				return
			case b, ok := <-beats:
				if !ok {
					return
				}
				if !pace.allows(time.Now()) { // no node of ours sends so many
					return
				}
				answer, ok := conn.Beat(b)
				if !ok || answers.Encode(answer) != nil || flush() != nil {
					return
				}
			}
		}
	})
}

// ask asks whether the node is a server, as a new one is known as one a little later, in pauses that grow to 30 s.
func (c *Conn) ask(ctx context.Context, server func(context.Context, string) bool) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if server(ctx, c.node) {
			c.setServer()
			return
		}
	}
}

// pace limits the Beats of a connection.
type pace struct {
	last time.Time
	used float64
}

// allows reports whether another Beat is in time.
func (p *pace) allows(now time.Time) bool {
	p.used = max(0, p.used-perSecond*now.Sub(p.last).Seconds()) + 1
	p.last = now
	return p.used <= burst
}

// read reads Beats until the first error, or ctx is done. The channel is closed then.
func read(ctx context.Context, body io.Reader) <-chan Beat {
	out := make(chan Beat)
	go func() {
		defer close(out)
		limited := &io.LimitedReader{R: body}
		decoder := json.NewDecoder(limited)
		for {
			limited.N = maxMessage
			var b Beat
			if decoder.Decode(&b) != nil {
				return
			}
			select {
			case out <- b:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
