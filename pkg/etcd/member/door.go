package member

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"github.com/coracle-dev/coracle/pkg/core/filewatch"
	"github.com/coracle-dev/coracle/pkg/core/sockets"
)

// maxStrangers is how many connections of one source are kept whose TLS handshake has not ended. A peer's are among them for milliseconds.
const maxStrangers = 100

// acceptPause is the pause after an error of accepting, such as a lack of descriptors. etcd's listener would end with it.
const acceptPause = 100 * time.Millisecond

// door is a listener for peers. If a source has too many connections that are not a peer's yet, any of them is closed for the next one: a pod has its
// node's address, so it must not keep the peer there out.
type door struct {
	net.Listener
	mu        sync.Mutex
	strangers map[netip.Prefix]map[*stranger]struct{}
	peers     map[*stranger]*tls.Conn // those inside
	streams   sync.Map                // the *stream of each path
}

func newDoor(listener net.Listener) *door {
	return &door{Listener: listener, strangers: map[netip.Prefix]map[*stranger]struct{}{}, peers: map[*stranger]*tls.Conn{}}
}

// stranger is a connection on which nobody has shown a certificate of a peer yet.
type stranger struct {
	net.Conn
	at     *door
	source netip.Prefix
}

// Accept returns the next connection. It may close another one.
func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	for err != nil && !errors.Is(err, net.ErrClosed) {
		<-time.After(acceptPause)
		conn, err = d.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	s := &stranger{conn, d, sockets.Source(from.Addr())}
	if surplus := d.add(s); surplus != nil {
		_ = surplus.Close()
	}
	return s, nil
}

// add adds a stranger. It returns one that is too many, or nil.
func (d *door) add(s *stranger) (surplus *stranger) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.strangers[s.source]
	if len(all) >= maxStrangers {
		for surplus = range all { // any
			break
		}
		delete(all, surplus)
	}
	if all == nil {
		all = map[*stranger]struct{}{}
		d.strangers[s.source] = all
	}
	all[s] = struct{}{}
	return surplus
}

// Close closes the connection.
func (s *stranger) Close() error {
	s.known()
	s.at.mu.Lock()
	delete(s.at.peers, s)
	s.at.mu.Unlock()
	return s.Conn.Close()
}

// known says that the connection is no stranger's any more.
func (s *stranger) known() {
	s.at.mu.Lock()
	defer s.at.mu.Unlock()
	delete(s.at.strangers[s.source], s)
	if len(s.at.strangers[s.source]) == 0 {
		delete(s.at.strangers, s.source)
	}
}

// inside is the listener behind the door that returns connections whose handshake has ended: those of peers. etcd's listener compares certificates with the
// authority of its start; inside compares them with the present one, and closes connections when another authority takes its place.
type inside struct {
	net.Listener
	door *door
	ca   string // the authority's file, "" for none
}

// Accept returns the next connection.
func (i inside) Accept() (net.Conn, error) {
	for {
		conn, err := i.Listener.Accept()
		secure, ok := conn.(*tls.Conn)
		if !ok {
			return conn, err
		}
		if s, ok := secure.NetConn().(*stranger); ok {
			s.known()
			i.door.mu.Lock()
			i.door.peers[s] = secure
			i.door.mu.Unlock()
		}
		if i.trusts(secure) {
			return conn, err
		}
		_ = conn.Close()
	}
}

// trusts reports whether the present authority has signed the certificate of a peer. If its file cannot be read, that of the start is enough.
func (i inside) trusts(peer *tls.Conn) bool {
	shown := peer.ConnectionState().PeerCertificates
	roots, err := certutil.NewPool(i.ca)
	if err != nil || len(shown) == 0 {
		return true
	}
	chain := x509.NewCertPool()
	for _, cert := range shown[1:] {
		chain.AddCert(cert)
	}
	_, err = shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// closeFormer closes the connections of peers whenever the authority has changed, if it is not theirs or their certificate has expired, until ctx is done. Peers
// connect again.
func (i inside) closeFormer(ctx context.Context) {
	changes := filewatch.Changes(ctx, func() string { return filewatch.State(i.ca) })
	for {
		select {
		case <-changes:
		case <-ctx.Done():
			return
		}
		for _, peer := range i.former() {
			go i.door.end(peer) // which waits while a message is sent
		}
	}
}

// former returns the connections whose certificates the present authority has not signed.
func (i inside) former() []*tls.Conn {
	i.door.mu.Lock()
	peers := slices.Collect(maps.Values(i.door.peers))
	i.door.mu.Unlock()
	return slices.DeleteFunc(peers, i.trusts)
}
