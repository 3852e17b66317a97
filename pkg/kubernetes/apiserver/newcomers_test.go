package apiserver

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestNewcomers: a source has few connections that nobody known has used, more with anonymous requests, a node has some, and users as many as they like; other sources are
// not affected.
func TestNewcomers(t *testing.T) {
	n := newNewcomers()
	port := 0
	arrive := func(host string) *newcomer {
		port++
		c := &newcomer{TCPConn: &net.TCPConn{}, all: n, remote: fmt.Sprintf("%s:%d", host, port), pool: pool{source: sourceOf(host + ":1")}}
		n.arrive(c)
		return c
	}
	request := func(c *newcomer, who *user.DefaultInfo) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.remote
		next := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: who}, who != nil, nil
		})
		if _, ok, err := n.authenticator(next).AuthenticateRequest(r); ok != (who != nil) || err != nil {
			t.Error(ok, err)
		}
	}
	other := arrive("192.0.2.2")
	for range 3 * maxNewcomers {
		request(arrive("192.0.2.1"), &user.DefaultInfo{Name: "tenant", Groups: []string{"system:authenticated"}})
	}
	if len(n.byAddress) != 1 || n.closed > 0 || !n.report.IsZero() {
		t.Errorf("connections of users count: %d", len(n.byAddress))
	}
	visitor := &user.DefaultInfo{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	for _, who := range []*user.DefaultInfo{
		{Name: "system:node:a", Groups: []string{"system:nodes"}}, {Name: "system:coracle:node:a", Groups: []string{"system:coracle:nodes"}},
	} {
		for range maxOfNode + 7 {
			c := arrive("192.0.2.1")
			request(c, who)
			request(c, visitor) // it stays the node's
			request(c, who)
		}
	}
	if got := len(n.byAddress); got != 2*maxOfNode+1 || n.closed != 2*7-1 { // one was logged
		t.Errorf("%d connections are kept with a node's, %d closed", got, n.closed)
	}
	for _, c := range n.byAddress {
		if c != other {
			c.Close()
		}
	}
	n.closed, n.report = 0, time.Time{}
	for _, who := range []*user.DefaultInfo{
		nil,
		{Name: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:bootstrappers:coracle:agent"}},
	} {
		for range maxNewcomers {
			request(arrive("192.0.2.1"), who)
		}
	}
	if len(n.byAddress) != maxNewcomers+1 || n.byAddress[other.remote] != other {
		t.Errorf("%d connections are kept", len(n.byAddress))
	}
	if n.report.IsZero() || n.closed != maxNewcomers-1 {
		t.Errorf("%d closed connections are to be logged", n.closed)
	}
	for range maxVisitors + 3 {
		c := arrive("192.0.2.3")
		request(c, visitor)
		request(c, visitor)
	}
	if got := len(n.byAddress); got != maxVisitors+maxNewcomers+1 {
		t.Errorf("%d connections are kept with visitors", got)
	}
	again := &newcomer{TCPConn: &net.TCPConn{}, all: n, remote: other.remote, pool: other.pool}
	n.arrive(again)
	other.Close()
	if n.byAddress[again.remote] != again || len(n.pools[again.pool]) != 1 {
		t.Error("a connection from a port that was used before is not known")
	}
	for _, c := range n.byAddress {
		c.Close()
	}
	if len(n.byAddress)+len(n.pools) > 0 {
		t.Errorf("%d connections and %d pools are left", len(n.byAddress), len(n.pools))
	}
}

// TestTurns: newcomers' handshakes are computed in turn. A connection that sends nothing, is slow, or is closed keeps no turn.
func TestTurns(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n := newNewcomers()
	connect := func() (client net.Conn, server *newcomer) {
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return client, &newcomer{TCPConn: conn.(*net.TCPConn), all: n, remote: conn.RemoteAddr().String()}
	}
	// arrives makes a connection that sends a byte, and returns it with a channel that is closed when the server has the byte.
	arrives := func() (*newcomer, chan struct{}) {
		client, server := connect()
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		has := make(chan struct{})
		go func() {
			_, _ = server.Read(make([]byte, 1))
			close(has)
		}()
		return server, has
	}
	connectSilent, silent := connect()
	defer connectSilent.Close()
	go func() { _, _ = silent.Read(make([]byte, 1)) }()
	for name, end := range map[string]func(*newcomer){
		"write": func(c *newcomer) { _, _ = c.Write([]byte("x")) },
		"close": func(c *newcomer) { c.Close() },
		"read":  func(c *newcomer) { go func() { _, _ = c.Read(make([]byte, 1)) }() },
	} {
		first, has := arrives()
		<-has
		second, hasToo := arrives()
		select {
		case <-hasToo:
			t.Errorf("%s: two handshakes are computed at the same time", name)
		case <-time.After(50 * time.Millisecond):
		}
		end(first)
		select {
		case <-hasToo:
		case <-time.After(time.Minute):
			t.Fatalf("%s: the turn is not given to the next", name)
		}
		second.Close()
		first.Close()
	}
	silent.Close()
	if len(n.turns) != 0 {
		t.Errorf("%d turns are taken", len(n.turns))
	}
}
