package kube

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
)

type peerKey struct{}

// WithPeer returns the request with the address of its connection in the context, if it writes Nodes: admission plugins do not see it otherwise.
func WithPeer(r *http.Request) *http.Request {
	if r.Method == http.MethodGet || !strings.HasPrefix(r.URL.Path, "/api/v1/nodes") {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), peerKey{}, r.RemoteAddr))
}

// PeerOf returns the address of the connection of a request; the zero value if it is not known.
func PeerOf(ctx context.Context) netip.Addr {
	text, _ := ctx.Value(peerKey{}).(string)
	peer, _ := netip.ParseAddrPort(text)
	return peer.Addr().Unmap().WithZone("")
}
