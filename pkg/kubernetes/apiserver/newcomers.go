package apiserver

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericserver "k8s.io/apiserver/pkg/server"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/coracle-dev/coracle/pkg/core/sockets"
)

const (
	// maxNewcomers is how many connections of one source are kept that nobody known has used yet. Each costs some 50 KB. Honest ones are among them
	// for some milliseconds, or until a machine has joined.
	maxNewcomers = 100
	// maxVisitors is how many others are kept of which only anonymous requests came: each agent keeps one to each server, for /readyz.
	maxVisitors = 1000
	// maxOfNode is how many a node keeps with its kubelet's certificate, and as many with its own, from wherever: some ten are usual.
	maxOfNode = 200
	// maxHandshakes is how many newcomers' TLS handshakes are computed at the same time, so that many at once leave time for requests of others.
	maxHandshakes = 1
	// acceptedKeepAlive is that of upstream, which sets it only for connections that it accepts itself.
	acceptedKeepAlive = 3 * time.Minute
)

// newcomers are the connections to the API on which no request was made by somebody who has more than a bootstrap token. If a source has too many, any of
// them is closed for the next one: so a source that opens many, slow ones for example, keeps others behind the same address out only if it
// opens them faster than these make their first request. Connections of nodes are limited for each node instead.
type newcomers struct {
	mu        sync.Mutex
	pools     map[pool]map[*newcomer]struct{}
	byAddress map[string]*newcomer
	turns     chan struct{} // holds an entry for each handshake that is being computed

	closed int       // since the last log line
	report time.Time // when the next line may be logged
}

// pool is what a limit is for.
type pool struct {
	source   netip.Prefix
	visitors bool
	node     string // its user; without a source
}

func (p pool) limit() int {
	switch {
	case p.node != "":
		return maxOfNode
	case p.visitors:
		return maxVisitors
	}
	return maxNewcomers
}

// newcomer is a connection.
type newcomer struct {
	*net.TCPConn
	all    *newcomers
	remote string
	pool   pool // the newcomers' mu protects it

	greeted bool        // it has sent something; only Read uses it
	turn    atomic.Bool // it holds one of the turns
}

func newNewcomers() *newcomers {
	return &newcomers{pools: map[pool]map[*newcomer]struct{}{}, byAddress: map[string]*newcomer{}, turns: make(chan struct{}, maxHandshakes)}
}

// limitNewcomers limits them at the outermost server.
func limitNewcomers(generic *genericserver.Config) {
	if generic.SecureServing == nil || generic.SecureServing.Listener == nil {
		return
	}
	n := newNewcomers()
	generic.SecureServing.Listener = newcomerListener{generic.SecureServing.Listener, n}
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericserver.Config) http.Handler {
		c.Authentication.Authenticator = n.authenticator(c.Authentication.Authenticator)
		return build(handler, c)
	}
}

// authenticator notes who is no newcomer any more.
func (n *newcomers) authenticator(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := next.AuthenticateRequest(r)
		switch {
		case !ok:
		case response.User.GetName() == user.Anonymous:
			n.move(r.RemoteAddr, pool{source: sourceOf(r.RemoteAddr), visitors: true})
		case isNode(response.User):
			n.move(r.RemoteAddr, pool{node: response.User.GetName()})
		case !slices.Contains(response.User.GetGroups(), bootstrapapi.BootstrapDefaultGroup):
			n.forget(r.RemoteAddr)
		}
		return response, ok, err
	})
}

// isNode reports whether a user is a kubelet, or coracle's part on a node.
func isNode(who user.Info) bool {
	return slices.ContainsFunc(who.GetGroups(), func(group string) bool { return group == user.NodesGroup || group == "system:coracle:nodes" })
}

// newcomerListener accepts connections as newcomers, except those from this machine itself.
type newcomerListener struct {
	net.Listener
	all *newcomers
}

// Accept returns the next connection. It may close another one.
func (l newcomerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn, nil
	}
	remote := tcp.RemoteAddr().String()
	source := sourceOf(remote)
	if source.Addr().IsLoopback() {
		return conn, nil
	}
	_ = tcp.SetKeepAlivePeriod(acceptedKeepAlive) // it is on
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = sockets.ControlOften("", "", raw)
	}
	c := &newcomer{TCPConn: tcp, all: l.all, remote: remote, pool: pool{source: source}}
	l.all.arrive(c)
	return c, nil
}

// Read reads from the connection. The first read takes a turn once it has data: with it the server computes its part of the handshake, which ends when
// it writes, or reads because there was too little. So nobody waits for a peer who is slow.
func (c *newcomer) Read(p []byte) (int, error) {
	c.endTurn()
	n, err := c.TCPConn.Read(p)
	if n > 0 && !c.greeted {
		c.greeted = true
		c.all.turns <- struct{}{}
		c.turn.Store(true)
	}
	return n, err
}

// Write writes to the connection.
func (c *newcomer) Write(p []byte) (int, error) {
	c.endTurn()
	return c.TCPConn.Write(p)
}

func (c *newcomer) endTurn() {
	if c.turn.CompareAndSwap(true, false) {
		<-c.all.turns
	}
}

// Close closes the connection.
func (c *newcomer) Close() error {
	c.endTurn()
	c.all.mu.Lock()
	c.all.drop(c)
	c.all.mu.Unlock()
	return c.TCPConn.Close()
}

// arrive adds a connection, and closes one that is too many.
func (n *newcomers) arrive(c *newcomer) {
	n.mu.Lock()
	surplus := n.add(c)
	n.mu.Unlock()
	if surplus != nil {
		_ = surplus.Close()
	}
}

// move moves the connection from an address to another pool, if it is in one. That of a node stays with it.
func (n *newcomers) move(remote string, to pool) {
	n.mu.Lock()
	var surplus *newcomer
	if c := n.byAddress[remote]; c != nil && c.pool != to && c.pool.node == "" {
		n.drop(c)
		c.pool = to
		surplus = n.add(c)
	}
	n.mu.Unlock()
	if surplus != nil {
		_ = surplus.Close()
	}
}

// add adds a connection to its pool. It returns the one that is too many, or nil. mu is held.
func (n *newcomers) add(c *newcomer) (surplus *newcomer) {
	its := n.pools[c.pool]
	if its == nil {
		its = map[*newcomer]struct{}{}
		n.pools[c.pool] = its
	}
	if len(its) >= c.pool.limit() {
		for surplus = range its { // any
			break
		}
		n.drop(surplus)
		n.note(c.pool)
	}
	its[c] = struct{}{}
	n.byAddress[c.remote] = c
	return surplus
}

// note counts a closed connection and logs at most one line a minute. mu is held.
func (n *newcomers) note(p pool) {
	n.closed++
	if now := time.Now(); now.After(n.report) {
		from, what := p.node, "a node with more than %d"
		if from == "" {
			from, what = p.source.Addr().String(), "an address with more than %d on which nobody has shown more than a join token"
		}
		logrus.WithFields(logrus.Fields{"component": "kube-apiserver", "from": from}).Warnf("closing connections of "+what+"; %d since the last such line", p.limit(), n.closed)
		n.closed, n.report = 0, now.Add(time.Minute)
	}
}

// forget forgets the connection from an address, if it is among the newcomers and no node's.
func (n *newcomers) forget(remote string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.byAddress[remote]; c != nil && c.pool.node == "" {
		n.drop(c)
	}
}

// drop removes a connection, if it is there. mu is held.
func (n *newcomers) drop(c *newcomer) {
	if n.byAddress[c.remote] == c { // else the client has used its port again
		delete(n.byAddress, c.remote)
	}
	delete(n.pools[c.pool], c)
	if len(n.pools[c.pool]) == 0 {
		delete(n.pools, c.pool)
	}
}
