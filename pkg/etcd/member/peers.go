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
	ended  chan struct{}
}

// peerReadTimeout is how long another member may take to send a request, a whole database among them.
const peerReadTimeout = 5 * time.Minute

// OpenPeers lets other members reach this one and tells the cluster where. It belongs before the first member is
// added, and may be called again. The member must be running.
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

// updateTimeout is for one try: of two changes of the membership at the same time etcd drops one without a word.
const updateTimeout = 2 * time.Second

var errNotRunning = errors.New("etcd is not running at this moment: try again")

// updateURL tells the cluster where this member is reached, unless it knows.
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

// tellURL goes on until the cluster knows.
func (l life) tellURL(ctx context.Context) error {
	return lifecycle.Until(ctx, "etcd's other members to learn this one's address", l.updateURL)
}

// info is how etcd is told. The address in the certificate of a member that connects is not compared with where it
// connects from: a member whose address has changed must be able to say so.
func (t TLS) info() transport.TLSInfo {
	return transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: t.CA != "", SkipClientSANVerify: true}
}

func (e *Etcd) peerURL() string { return "https://" + e.Peer.String() }

// openPeers listens, unless it does already.
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
	listener, err := transport.NewListenerWithOpts(e.Peer.String(), "https", transport.WithTLSInfo(&info),
		transport.WithTimeout(rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout), limitUnacknowledged)
	if err != nil {
		return e.explainListen(err)
	}
	p := &peers{ended: make(chan struct{}), server: &http.Server{
		Handler:     etcdhttp.NewPeerHandler(e.running.GetLogger(), e.running.Server),
		ReadTimeout: peerReadTimeout,
		ErrorLog:    zap.NewStdLog(e.running.GetLogger()), // of handshakes that strangers begin; seen when debugging
	}}
	go func() {
		defer close(p.ended)
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logrus.WithField("component", "etcd").WithError(err).Error("serving other members")
		}
	}()
	go closeSilent(p.ended, int(e.Peer.Port()))
	e.opened = p
	return e.rememberPeers()
}

// explainListen turns an error of listening into a sentence.
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

// closePeers ends the server, after etcd's own.
func (e *Etcd) closePeers() {
	e.mu.Lock()
	p := e.opened
	e.opened = nil
	e.mu.Unlock()
	if p != nil {
		p.server.Close()
		<-p.ended
	}
}
