package member

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// peers is the server that other members connect to.
type peers struct {
	server *http.Server
	inside inside
	ended  chan struct{}
}

// peerReadTimeout limits a request of another member, which may contain the whole database.
const peerReadTimeout = 5 * time.Minute

// OpenPeers opens the port for peers and publishes its URL in the cluster. It is called before the first member is added, and may be called
// again. The member must be running.
func (e *Etcd) OpenPeers(ctx context.Context) error {
	if err := e.openPeers(); err != nil {
		return err
	}
	e.mu.Lock()
	server := e.running
	e.mu.Unlock()
	if server == nil {
		return errNotRunning
	}
	e.updating.Lock()
	defer e.updating.Unlock()
	l := life{Etcd: e, server: server}
	for {
		try, cancel := context.WithTimeout(ctx, updateTimeout)
		err := l.updateURL(try)
		cancel()
		if err == nil || ctx.Err() != nil || try.Err() == nil {
			return err
		}
	}
}

// updateTimeout limits one try: of two concurrent changes of the membership etcd silently drops one.
const updateTimeout = 2 * time.Second

var errNotRunning = errors.New("etcd is not running at this moment: try again")

// updateURL publishes this member's URL in the cluster, unless it is known.
func (l life) updateURL(ctx context.Context) error {
	id, url := l.server.Server.MemberID(), l.peerURL()
	self := l.server.Server.Cluster().Member(id)
	if self == nil {
		return errors.New("this member does not know the cluster's members yet")
	}
	if slices.Equal(self.PeerURLs, []string{url}) {
		return nil
	}
	_, err := l.server.Server.UpdateMember(ctx, membership.Member{ID: id, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{url}}})
	if err != nil {
		return fmt.Errorf("telling the cluster that this server's etcd is at %s: %w", url, err)
	}
	logrus.WithField("component", "etcd").WithField("url", url).Info("other servers reach this member")
	return nil
}

// publishURL repeats updateURL until it succeeds.
func (l life) publishURL(ctx context.Context) error {
	return lifecycle.Until(ctx, "etcd's other members to learn this one's address", l.updateURL)
}

// info returns the files as etcd's type. The addresses in the certificate of a connecting member are not compared with its source address,
// so that a member whose address has changed can publish the new one.
func (t TLS) info() transport.TLSInfo {
	return transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: t.CA != "", SkipClientSANVerify: true}
}

func (e *Etcd) peerURL() string { return "https://" + e.Peer.String() }

// openPeers opens the port for peers, unless it is open.
func (e *Etcd) openPeers() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.opened != nil {
		return nil
	}
	if e.running == nil {
		return errNotRunning
	}
	info := e.TLS.info()
	plain, err := transport.NewListenerWithOpts(e.Peer.String(), "http",
		transport.WithTimeout(rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout), prepareAccepted)
	if err != nil {
		return e.explainListen(err)
	}
	door := newDoor(plain)
	secure, err := transport.NewTLSListener(door, &info)
	if err != nil {
		return errors.Join(err, plain.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &peers{inside: inside{secure, door, e.TLS.CA}, ended: make(chan struct{}), server: &http.Server{
		Handler:     door.withStreams(etcdhttp.NewPeerHandler(e.running.GetLogger(), e.running.Server)),
		ConnContext: withConn,
		ReadTimeout: peerReadTimeout,
		ErrorLog:    zap.NewStdLog(e.running.GetLogger()), // about failed TLS handshakes, at level debug
	}}
	go func() {
		defer close(p.ended)
		defer cancel()
		if err := p.server.Serve(p.inside); !errors.Is(err, http.ErrServerClosed) {
			logrus.WithField("component", "etcd").WithError(err).Error("serving other members")
		}
	}()
	go p.inside.closeFormer(ctx)
	go closeSilent(p.ended, int(e.Peer.Port()))
	e.opened = p
	return e.rememberPeers()
}

// explainListen adds the fix to an error of listening.
func (e *Etcd) explainListen(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another program on %s listens on %s, where the servers' etcd members reach each other: stop it "+
			"(ss -ltnp shows which it is)", e.Name, e.Peer)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s has no address %s, where the other servers' etcd members are to reach it: correct --node-ip", e.Name, e.Peer.Addr())
	}
	return fmt.Errorf("listening on %s for other members of etcd: %w", e.Peer, err)
}

// closePeers closes the port for peers, after etcd has stopped. A start that goes on beside (see life.run) cannot open it any more.
func (e *Etcd) closePeers() {
	e.mu.Lock()
	p := e.opened
	e.opened, e.running = nil, nil
	e.mu.Unlock()
	if p != nil {
		p.server.Close()
		<-p.ended
	}
}
