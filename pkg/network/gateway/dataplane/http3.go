package dataplane

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
	"github.com/coracle-dev/coracle/pkg/network/gateway/http3"
)

// http3Grace is how long requests of HTTP/3 may go on when the process ends or another one takes over, which their connections do not outlive.
const http3Grace = 2 * time.Second

// http3Sites returns what is served with HTTP/3: Caddy's servers, with the certificates that they show for TCP. Addresses of a Gateway alone, to which
// only what it asks for gets through, are left out.
func (s *serving) http3Sites(config gateway.Config, listeners []gateway.Listener) (out []http3.Site, err error) {
	active := caddy.ActiveContext()
	app, err := active.App("http")
	if err != nil {
		return nil, err
	}
	for _, number := range config.HTTP3 {
		server := app.(*caddyhttp.App).Servers[serverName(number, gateway.HTTPS)]
		secure := slices.ContainsFunc(listeners, func(l gateway.Listener) bool { return l.Port == number && l.Protocol == gateway.HTTPS })
		taken := slices.ContainsFunc(config.Listeners, func(l gateway.Listener) bool { return l.Port == number && l.Protocol == gateway.UDP })
		if server == nil || !secure || taken {
			continue
		}
		shown := server.TLSConnPolicies.TLSConfig(active)
		out = append(out, http3.Site{Port: number, Handler: server, TLS: &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			local, ok := hello.Conn.LocalAddr().(interface{ AddrPort() netip.AddrPort })
			if !ok || s.current.Load().table.Own(local.AddrPort()) || s.streams.Takes(local.AddrPort(), hello.ServerName) {
				return nil, errors.New("this host or address is served with TCP only")
			}
			return shown.GetConfigForClient(hello)
		}}})
	}
	return out, nil
}

// advertise tells the client of HTTPS that there is HTTP/3 too (RFC 7838).
func (s *serving) advertise(w http.ResponseWriter, req *http.Request) {
	if req.TLS == nil || req.ProtoMajor > 2 {
		return
	}
	if local := connectionOf(req).Local; s.http3.Serves(local.Port()) && !s.current.Load().table.Own(local) {
		w.Header().Set("Alt-Svc", fmt.Sprintf(`h3=":%d"; ma=3600`, local.Port()))
	}
}
