package tunnel

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// Handler upgrades nodes' requests. Who returns the node that has sent a request, as the server has authenticated it;
// refuse answers a request that cannot be served.
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
		if err = watched(conn); err == nil {
			_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol)
		}
		if err != nil {
			_ = conn.Close()
			return
		}
		_ = h.Serve(node, &upgraded{conn, buffered.Reader}) // a failure closes the connection, and the node dials again
	})
}

// watched has the kernel find out whether the other end of a connection is still there.
func watched(conn net.Conn) error {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if plain, ok := conn.(*net.TCPConn); ok {
		return plain.SetKeepAliveConfig(keepAlive)
	}
	return nil
}
