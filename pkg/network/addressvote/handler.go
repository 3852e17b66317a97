package addressvote

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"
)

// Handler answers a node's Beats, a JSON object for each, as long as the request lasts. who returns the authenticated node of a
// request; server reports whether a node is a server of the cluster.
func (v *Voter) Handler(who func(*http.Request) (string, error), server func(context.Context, string) bool, refuse func(w http.ResponseWriter, status int, sentence string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node, err := who(r)
		switch {
		case err != nil:
			refuse(w, http.StatusForbidden, err.Error())
			return
		case r.ProtoMajor < 2:
			refuse(w, http.StatusHTTPVersionNotSupported, "beats need HTTP/2")
			return
		}
		ctx, cancel := context.WithCancel(r.Context()) // it ends too when the node's certificate is revoked
		defer cancel()
		conn := v.Connect(node, false, cancel)
		defer conn.Close()
		var asked time.Time
		flush := http.NewResponseController(w).Flush
		if flush() != nil { // the headers tell the node that it is served
			return
		}
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
				if len(v.vips) > 0 && !conn.server && time.Since(asked) > time.Second { // a new server is known as one a little later
					asked, conn.server = time.Now(), server(ctx, node)
				}
				answer, ok := conn.Beat(b)
				if !ok || answers.Encode(answer) != nil || flush() != nil {
					return
				}
			}
		}
	})
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
