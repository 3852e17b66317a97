package http3

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	upstream "github.com/quic-go/quic-go/http3"
)

// port is a socket with what is served on it.
type port struct {
	conn      net.PacketConn
	transport *quic.Transport
	listener  *quic.Listener
	accepted  chan *quic.Conn
	clients   *clients
	ctx       context.Context // done when the port closes
	cancel    context.CancelFunc
	ending    sync.WaitGroup // generations
	accepting sync.WaitGroup

	current atomic.Pointer[generation]
}

// generation is what is served until the site changes: then clients are told to come again, so that they have shown what the new one wants.
type generation struct {
	Site
	server *upstream.Server
}

// open opens a port.
func (s *Server) open(site Site) (*port, error) {
	conn, err := s.sockets.ListenPacket("udp", fmt.Sprintf(":%d", site.Port))
	if err != nil {
		return nil, err
	}
	reset, token := quic.StatelessResetKey(s.key("reset")), quic.TokenGeneratorKey(s.key("token"))
	p := &port{conn: conn, accepted: make(chan *quic.Conn), clients: s.clients}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.serve(site, s.grace)
	p.transport = &quic.Transport{
		Conn: conn, StatelessResetKey: &reset, TokenGeneratorKey: &token,
		VerifySourceAddress: func(net.Addr) bool { return s.clients.busy() },
		ConnContext: func(ctx context.Context, from *quic.ClientInfo) (context.Context, error) {
			if s.sockets.Proxied(from.RemoteAddr) {
				return nil, errors.New("its client is unknown")
			}
			return s.clients.begin(ctx, from.RemoteAddr)
		},
	}
	secure := upstream.ConfigureTLSConfig(&tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		g := p.current.Load()
		if v, ok := hello.Context().Value(visitKey{}).(*visit); ok {
			v.of.Store(g)
		}
		return g.TLS.GetConfigForClient(hello)
	}})
	p.listener, err = p.transport.Listen(secure, settings())
	if err != nil {
		p.cancel()
		return nil, errors.Join(err, p.transport.Close(), conn.Close())
	}
	p.accepting.Go(p.accept)
	return p, nil
}

// key returns the key for a use.
func (s *Server) key(use string) [sha256.Size]byte {
	secret := s.sockets.Secret()
	return sha256.Sum256(append(secret[:], use...))
}

// settings bound what a connection takes. Two windows of data that nobody has read yet are its most, 1 MiB together, and a header for each stream.
func settings() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout: 5 * time.Second, MaxIdleTimeout: 30 * time.Second,
		MaxIncomingStreams: 100, MaxIncomingUniStreams: 8, // requests, and the streams of HTTP/3 itself
		KeepAlivePeriod: 10 * time.Second, InitialStreamReceiveWindow: 256 << 10, MaxStreamReceiveWindow: 512 << 10,
		InitialConnectionReceiveWindow: 512 << 10, MaxConnectionReceiveWindow: 1 << 20,
	}
}

// maxHeader is the most bytes of a request's header. It is less than for HTTP/1 and HTTP/2, because a client's 16 connections have 100 requests each.
const maxHeader = 16 << 10

// serve serves a site from now on.
func (p *port) serve(site Site, grace time.Duration) {
	before := p.current.Load()
	if before != nil && before.Handler == site.Handler {
		return
	}
	next := &generation{site, &upstream.Server{Handler: handler{site.Handler}, MaxHeaderBytes: maxHeader, IdleTimeout: 5 * time.Minute}}
	p.current.Store(next)
	go func() { _ = next.server.ServeListener(ofGeneration{p, next}) }()
	if before != nil {
		p.end(before, grace)
	}
}

// end begins to end the connections of a generation: clients are told to come again, and requests have a time to end.
func (p *port) end(g *generation, grace time.Duration) {
	p.ending.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, grace)
		defer cancel()
		_ = g.server.Shutdown(ctx)
	})
}

// accept gives connections whose handshake is done to the servers of the port, of which one accepts them.
func (p *port) accept() {
	for {
		conn, err := p.listener.Accept(context.Background())
		if err != nil {
			return
		}
		p.clients.greeted(conn.Context())
		select {
		case p.accepted <- conn:
		case <-p.ctx.Done():
			_ = conn.CloseWithError(quic.ApplicationErrorCode(upstream.ErrCodeNoError), "")
			return
		}
	}
}

// ofGeneration accepts the connections of a port for a generation: those whose handshakes it has answered. The clients of others, for whom it changed meanwhile,
// are told to come again.
type ofGeneration struct {
	*port
	own *generation
}

// Accept implements upstream.QUICListener.
func (o ofGeneration) Accept(ctx context.Context) (*quic.Conn, error) {
	for {
		select {
		case conn := <-o.accepted:
			v, ok := conn.Context().Value(visitKey{}).(*visit)
			// A server whose site has changed has not always been told yet, and one that ends would drop it without a word.
			if ok && v.of.Load() == o.own && o.current.Load() == o.own && ctx.Err() == nil {
				return conn, nil
			}
			_ = conn.CloseWithError(quic.ApplicationErrorCode(upstream.ErrCodeNoError), "")
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.ctx.Done():
			return nil, net.ErrClosed
		}
	}
}

// Addr implements upstream.QUICListener.
func (o ofGeneration) Addr() net.Addr { return o.conn.LocalAddr() }

// Close implements upstream.QUICListener. The servers do not close the port.
func (o ofGeneration) Close() error { return nil }

// close closes the port, after requests have had a time to end. Clients are told.
func (p *port) close(grace time.Duration) {
	_ = p.listener.Close()
	p.end(p.current.Load(), grace)
	await(&p.ending, grace)
	p.cancel()
	await(&p.ending, farewell)
	await(&p.accepting, farewell)
	_ = p.transport.Close()
	_ = p.conn.Close()
}

// farewell is how long it may take to tell clients that their connections are closed.
const farewell = 500 * time.Millisecond

// await waits for a time at most.
func await(group *sync.WaitGroup, most time.Duration) {
	ended := make(chan struct{})
	go func() {
		group.Wait()
		close(ended)
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}
