package dataplane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// transport is what Caddy's proxy sends requests with: to the addresses of the route's backend, changed as the route says. Caddy keeps what is
// the connection's, such as the client's address, upgrades and trailers.
type transport struct{}

// CaddyModule implements caddy.Module.
func (transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport." + transportModule, New: func() caddy.Module { return new(transport) }}
}

const (
	// dialRetries are how often a request is sent to another address, after one that did not accept the connection.
	dialRetries = 3
	// maxAttempts and maxBackoff bound what a route asks for.
	maxAttempts = 20
	maxBackoff  = 30 * time.Second
)

// timeoutError says that a request took longer than its route allows.
type timeoutError struct{}

func (timeoutError) Error() string { return "the request took longer than its route allows" }
func (timeoutError) Timeout() bool { return true }

// Temporary implements net.Error.
func (timeoutError) Temporary() bool { return true }

var errTimeout error = timeoutError{}

// RoundTrip implements http.RoundTripper.
func (transport) RoundTrip(req *http.Request) (*http.Response, error) {
	f, ok := caddyhttp.GetVar(req.Context(), forwardingVar).(*forwarding)
	if !ok {
		return nil, errors.New("the request has no route")
	}
	if f.policy != nil && f.policy.Stall > 0 {
		return f.watched(req)
	}
	return f.send(req)
}

// send sends a request to the addresses of its backend, and returns the answer for the client.
func (f *forwarding) send(req *http.Request) (*http.Response, error) {
	f.change(req, f.backend)
	body, err := f.keepBody(req)
	if err != nil {
		return nil, err
	}
	way := f.state.transports.of(f.backend)
	address := f.next(nil)
	tried := []string{address}
	for sent, retried := 1, 0; ; sent++ {
		res, err := f.attempt(req, way, address)
		again, pause := f.again(req, res, err, sent, &retried)
		if !again || req.Context().Err() != nil || !body.rewind(req, err) {
			return f.finish(req, res, err)
		}
		if address = f.next(tried); address == "" { // all were tried
			if retried == 0 {
				return f.finish(req, res, err)
			}
			tried, address = nil, f.next(nil)
		}
		tried = append(tried, address)
		if res != nil {
			res.Body.Close()
		}
		if err := lifecycle.Sleep(req.Context(), pause); err != nil {
			return nil, err
		}
	}
}

// change makes of a client's request what a backend gets.
func (f *forwarding) change(req *http.Request, to *gateway.Backend) {
	introduce(req, f.port)
	if r := f.route.Rewrite; r != nil && r.Host != "" {
		req.Host = r.Host
	}
	if f.rewritten != nil {
		req.URL = f.rewritten
	}
	applyToRequest(req, f.route.RequestHeaders)
	applyToRequest(req, to.RequestHeaders)
}

// attempt sends a request to an address.
func (f *forwarding) attempt(req *http.Request, way *way, address string) (*http.Response, error) {
	u := *req.URL
	u.Scheme, u.Host = way.scheme, address
	ctx, cancel := req.Context(), func() {}
	var timer *time.Timer
	if f.route.BackendTimeout > 0 {
		own, stop := context.WithCancelCause(ctx)
		timer = time.AfterFunc(f.route.BackendTimeout, func() { stop(errTimeout) })
		ctx, cancel = own, func() { timer.Stop(); stop(nil) }
	}
	one := req.WithContext(ctx)
	one.URL = &u
	res, err := way.RoundTrip(one)
	switch {
	case err != nil:
		if errors.Is(context.Cause(ctx), errTimeout) {
			err = errTimeout
		}
		cancel()
	case res.StatusCode == http.StatusSwitchingProtocols: // from here on it is no request
		if f.timer != nil {
			f.timer.Stop()
		}
		if timer != nil {
			timer.Stop()
		}
	case timer != nil:
		res.Body = &closing{res.Body, cancel}
	}
	return res, err
}

// closing is a body after which something is to be done.
type closing struct {
	io.ReadCloser
	after func()
}

func (c *closing) Close() error {
	defer c.after()
	return c.ReadCloser.Close()
}

// again decides whether there is another attempt, and after what pause.
func (f *forwarding) again(req *http.Request, res *http.Response, err error, sent int, retried *int) (bool, time.Duration) {
	if err != nil {
		if _, dialing := errors.AsType[dialError](err); dialing && sent <= dialRetries {
			return true, 0
		}
		// A backend that ends has closed the connection. As Caddy does, what changes nothing is sent again.
		if !errors.Is(err, errTimeout) && req.Method == http.MethodGet && req.Body == nil && sent <= dialRetries && f.route.Retry == nil {
			return true, 0
		}
	}
	retry := f.route.Retry
	if retry == nil || *retried >= min(retry.Attempts, maxAttempts) {
		return false, 0
	}
	status := 0
	if err != nil {
		status = http.StatusBadGateway
		if errors.Is(err, errTimeout) {
			status = http.StatusGatewayTimeout
		}
	} else {
		status = res.StatusCode
	}
	if !slices.Contains(retry.Codes, status) || retry.Idempotent && !idempotent(req.Method) {
		return false, 0
	}
	*retried++
	return true, min(retry.Backoff<<(*retried-1), maxBackoff)
}

// idempotent reports whether a request may be sent twice (RFC 9110, 9.2.2).
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// finish makes of a backend's answer what the client gets.
func (f *forwarding) finish(req *http.Request, res *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	res = f.page(req, res)
	if f.cookie != nil {
		res.Header.Add("Set-Cookie", f.cookie.String())
	}
	if f.route.CORS != nil {
		allowOrigin(res.Header, req, f.route.CORS)
	}
	applyHeaders(res.Header, f.route.ResponseHeaders)
	applyHeaders(res.Header, f.backend.ResponseHeaders)
	return res, nil
}

// dialError says that an address did not accept a connection, so that it has got nothing of a request.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// dial connects to a backend.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, dialError{err}
	}
	return conn, nil
}
