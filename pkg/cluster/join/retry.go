package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/version"
)

// Pauses between attempts. They grow with the time waited, of which each is one twentieth.
const shortPause, longPause, pauseShare = 250 * time.Millisecond, 2 * time.Second, 20

// A server that starts does not answer until it has written its tokens and roles, and may deny requests for some seconds then, until it has read them again. So
// attempts go on for a grace period after the first denial: a longer one if the server did not answer before.
const (
	graceRunning  = 4 * time.Second
	graceStarting = 12 * time.Second
)

// retrier sends requests to join to a server until it accepts this machine or refuses it.
type retrier struct {
	client  Client
	path    string
	request Request
	// retry goes on while the server is unreachable.
	retry bool
	// waiting is called after each failed attempt that will be repeated.
	waiting func(why error)
}

func (r retrier) join(ctx context.Context) (Response, error) {
	var (
		began    = time.Now()
		grace    = graceRunning
		deniedAt time.Time
	)
	for {
		response, err := r.client.Join(ctx, r.path, r.request)
		switch {
		case err == nil:
			return response, nil
		case ctx.Err() != nil:
			return response, ctx.Err()
		case errors.As(err, new(*Unreachable)) && r.retry:
			grace, deniedAt = graceStarting, time.Time{}
		case errors.As(err, new(*Denied)) && r.retry:
			if deniedAt.IsZero() {
				deniedAt = time.Now()
			}
			if time.Since(deniedAt) > grace {
				return response, err
			}
		default:
			return response, err
		}
		if grace == graceStarting {
			r.waiting(err)
		}
		if lifecycle.Sleep(ctx, min(max(time.Since(began)/pauseShare, shortPause), longPause)) != nil {
			return response, ctx.Err()
		}
	}
}

// AskAny requests the cluster's settings from all servers at once and returns the first response and its server. client makes the client for
// a HOST:PORT. The request to a server that cannot answer yet is repeated until ctx is done. Without a response the error is that of a
// reachable server, else that of the first in the list.
func AskAny(ctx context.Context, servers []string, client func(server string) Client) (Cluster, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		cluster Cluster
		server  string
		err     error
	}
	answers := make(chan answer, len(servers))
	var all sync.WaitGroup
	for _, s := range servers {
		all.Go(func() {
			c, err := askOne(ctx, client(s))
			answers <- answer{c, s, err}
		})
	}
	go func() {
		all.Wait()
		close(answers)
	}()
	errs := map[string]error{}
	for a := range answers {
		if a.err == nil {
			return a.cluster, a.server, nil
		}
		errs[a.server] = a.err
	}
	for _, s := range servers {
		if !errors.As(errs[s], new(*Unreachable)) || answered(errs[s]) {
			return Cluster{}, s, errs[s]
		}
	}
	if len(servers) == 0 {
		return Cluster{}, "", errors.New("no server is known")
	}
	return Cluster{}, servers[0], errs[servers[0]]
}

// askOne requests the settings from one server until it answers or is unreachable.
func askOne(ctx context.Context, c Client) (cluster Cluster, err error) {
	var last error
	for {
		cluster, err = c.Cluster(ctx)
		switch {
		case answered(err):
			last = err
		case err != nil && ctx.Err() != nil && last != nil:
			return cluster, last
		default:
			return cluster, err
		}
		if lifecycle.Sleep(ctx, shortPause) != nil {
			return cluster, last
		}
	}
}

// AsNode returns a client that calls the servers through this machine's balancer with the node's certificate.
func AsNode(cfg config.Config) (Client, error) {
	ca, err := os.ReadFile(cfg.Dirs.NodeCA())
	if err != nil {
		return Client{}, fmt.Errorf("reading the cluster's CA certificate: %w", err)
	}
	cert, key := pki.NodeFiles(cfg.Dirs)
	return Client{Server: "https://" + cfg.Node.Balancer().String(), CA: ca, CertFile: cert, KeyFile: key}, nil
}

// Replaced reports whether the servers have other authorities than this node knows: the certificate of the one that answers is signed by another one than
// the first of the node's, or one of the others does not follow that one in its chain, as former ones stand before it.
func Replaced(ctx context.Context, cfg config.Config) bool {
	c, err := AsNode(cfg)
	if err != nil {
		return false
	}
	seen := &verifier{client: c}
	conn, err := (&tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, VerifyConnection: seen.verify, MinVersion: tls.VersionTLS12,
	}}).DialContext(ctx, "tcp", cfg.Node.Balancer().String())
	if err != nil {
		return false
	}
	conn.Close()
	known := pki.ParseCerts(c.CA)
	if len(known) == 0 || !pki.SignedBy(seen.leaf.Load(), known[:1]) {
		return len(known) > 0
	}
	first := slices.IndexFunc(seen.chain, known[0].Equal)
	return first < 0 || slices.ContainsFunc(known, func(k *x509.Certificate) bool { return !slices.ContainsFunc(seen.chain[first:], k.Equal) })
}

// Renew requests a new certificate for the node's key, authenticated with the present one, and replaces the present one. Servers accept one that has
// expired for this.
func Renew(ctx context.Context, cfg config.Config, client Client) error {
	_, err := renew(ctx, cfg, client)
	return err
}

// renew does the same and returns what the server says of the cluster.
func renew(ctx context.Context, cfg config.Config, client Client) (Cluster, error) {
	csr, err := pki.NodeRequest(cfg.Dirs, cfg.Node.Name)
	if err != nil {
		return Cluster{}, err
	}
	client.CertFile, client.KeyFile = pki.NodeFiles(cfg.Dirs)
	response, err := client.Join(ctx, PathAgent, Request{Node: cfg.Node.Name, Version: version.Version, CSR: csr})
	if err != nil {
		return Cluster{}, err
	}
	return response.Cluster, pki.AcceptNode(cfg, response.Cluster.CA, response.Cert)
}
