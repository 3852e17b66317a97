package tunnel

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Handler upgrades the requests of nodes to tunnels. who returns the authenticated node of a request; refuse answers a request that
// cannot be served.
func (h *Hub) Handler(who func(*http.Request) (node string, err error), refuse func(w http.ResponseWriter, status int, sentence string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node, err := who(r)
		if err != nil {
			refuse(w, http.StatusForbidden, err.Error())
			return
		}
		if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) {
			refuse(w, http.StatusUpgradeRequired, "this path is for nodes' tunnels: GET with Upgrade: "+Protocol)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			refuse(w, http.StatusHTTPVersionNotSupported, "a tunnel needs HTTP/1.1: "+err.Error())
			return
		}
		_ = conn.SetDeadline(time.Time{})
		if err = enableKeepAlive(conn); err == nil {
			_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol)
		}
		if err != nil {
			_ = conn.Close()
			return
		}
		_ = h.Serve(node, &upgraded{conn, buffered.Reader}) // after an error the connection is closed, and the node dials again
		if r.Context().Err() != nil {                       // the request was ended while it was served: Disconnect may have come before
			_ = conn.Close()
		}
	})
}

// enableKeepAlive makes the kernel check that the other end of a connection is still there.
func enableKeepAlive(conn net.Conn) error {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if plain, ok := conn.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		return plain.SetKeepAliveConfig(keepAlive)
	}
	return nil
}
