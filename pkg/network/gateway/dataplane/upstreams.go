package dataplane

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// upstreams is the source from which Caddy's reverse proxy takes an address for each attempt of a request.
type upstreams struct{}

// CaddyModule implements caddy.Module.
func (upstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.upstreams." + upstreamsModule, New: func() caddy.Module { return new(upstreams) }}
}

// GetUpstreams implements reverseproxy.UpstreamSource.
func (upstreams) GetUpstreams(r *http.Request) ([]*reverseproxy.Upstream, error) {
	a, ok := caddyhttp.GetVar(r.Context(), attemptsVar).(*attempts)
	if !ok {
		return nil, errors.New("the request has no route")
	}
	address := a.table.Next(a.backend, a.tried)
	if address == "" {
		return []*reverseproxy.Upstream{}, nil
	}
	a.tried = append(a.tried, address)
	return []*reverseproxy.Upstream{{Dial: address}}, nil
}
