package join

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/version"
)

// How often a server is tried, and for how long one is that denies.
const (
	// The longer one has waited, the less does a pause matter that grows with it.
	shortPause, longPause, pauseShare = 250 * time.Millisecond, 2 * time.Second, 20
	// A server answers before it has its tokens and roles, which it needs seconds for; the one that we saw starting
	// has just begun.
	graceRunning  = 4 * time.Second
	graceStarting = 30 * time.Second
)

// Entry is one machine's way into a cluster.
type Entry struct {
	Client  Client
	Path    string
	Request Request
	// Retry goes on while no server answers.
	Retry bool
	// Waiting is told after each try why there will be another.
	Waiting func(why error)
}

// Run tries until a server lets the machine in or refuses it.
func (e Entry) Run(ctx context.Context) (Response, error) {
	var (
		began    = time.Now()
		grace    = graceRunning
		deniedAt time.Time
	)
	for {
		response, err := e.Client.Join(ctx, e.Path, e.Request)
		var unreachable *Unreachable
		var denied *Denied
		switch {
		case err == nil:
			return response, nil
		case ctx.Err() != nil:
			return response, ctx.Err()
		case errors.As(err, &unreachable) && e.Retry:
			grace, deniedAt = graceStarting, time.Time{}
		case errors.As(err, &denied) && e.Retry:
			if deniedAt.IsZero() {
				deniedAt = time.Now()
			}
			if time.Since(deniedAt) > grace {
				return response, err
			}
		default:
			return response, err
		}
		if unreachable != nil || grace == graceStarting {
			e.Waiting(err)
		}
		if !sleep(ctx, min(max(time.Since(began)/pauseShare, shortPause), longPause)) {
			return response, ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// AskAny asks servers, all at once, what the cluster is like and returns the first answer with who gave it. client says
// how to ask a HOST:PORT. A server that cannot answer yet is asked again until ctx is done. Without an answer it returns the error of one that is there, else of the first in the list.
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
		var unreachable *Unreachable
		if !errors.As(errs[s], &unreachable) || unreachable.Answered {
			return Cluster{}, s, errs[s]
		}
	}
	if len(servers) == 0 {
		return Cluster{}, "", errors.New("no server is known")
	}
	return Cluster{}, servers[0], errs[servers[0]]
}

// askOne asks a server until it answers or is not there.
func askOne(ctx context.Context, c Client) (cluster Cluster, err error) {
	var last error
	for {
		cluster, err = c.Cluster(ctx)
		var unreachable *Unreachable
		switch {
		case errors.As(err, &unreachable) && unreachable.Answered:
			last = err
		case err != nil && ctx.Err() != nil && last != nil:
			return cluster, last
		default:
			return cluster, err
		}
		if !sleep(ctx, shortPause) {
			return cluster, last
		}
	}
}

// Renew asks a server for a new certificate for the node's key, as the node, and puts it in the place of the old one.
func Renew(ctx context.Context, cfg config.Config, client Client) error {
	csr, err := pki.NodeRequest(cfg.Dirs, cfg.Node.Name)
	if err != nil {
		return err
	}
	client.CertFile, client.KeyFile = pki.NodeFiles(cfg.Dirs)
	response, err := client.Join(ctx, PathAgent, Request{Node: cfg.Node.Name, Version: version.Version, CSR: csr})
	if err != nil {
		return err
	}
	return pki.AcceptNode(cfg, client.CA, response.Cert)
}
