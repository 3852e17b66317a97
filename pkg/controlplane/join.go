package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/joinserver"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeclaims"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/cluster/token"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/kubernetes/apiserver"
	"github.com/coracle-dev/coracle/pkg/kubernetes/leaderelection"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

// entrance is where other machines join: the handlers, which the API serves, and what opens them.
type entrance struct {
	server *joinserver.Server
	hub    *tunnel.Hub // of the nodes' tunnels
	open   chan struct{}
	once   sync.Once
}

func newEntrance(cfg config.Config) (*entrance, error) {
	dirs := cfg.Dirs
	client, err := kube.Client(dirs.ServerConfig("coracle.kubeconfig"))
	if err != nil {
		return nil, err
	}
	return &entrance{open: make(chan struct{}), hub: &tunnel.Hub{}, server: &joinserver.Server{
		Client:   client,
		Version:  version.Version,
		Own:      net.JoinHostPort(cfg.API.Advertise.String(), strconv.Itoa(int(cfg.API.Port))),
		CA:       func() ([]byte, error) { return os.ReadFile(pkiFile(dirs, "ca.crt")) },
		Settings: cfg.Shared,
		Keys:     func() (map[string][]byte, error) { return pki.ReadKeys(dirs) },
		Sign:     func(csr []byte, node string) ([]byte, error) { return pki.SignNode(dirs, csr, node) },
		Several:  func() error { return join.NoteOther(dirs.ServerCluster()) },
	}}, nil
}

// extension is the entrance as the API server takes it.
func (e *entrance) extension() apiserver.Extension {
	return apiserver.Extension{
		Prefix: join.Prefix, Handler: e.server.Handler(), LongRunning: []string{join.PathTunnel},
		Open: e.open, Closed: http.HandlerFunc(joinserver.Closed),
	}
}

// doors opens the entrance, to members of data too.
func (e *entrance) doors(cfg config.Config, data storage, leader *leaderelection.Leadership) (nodeclaims.Doors, error) {
	if data.members != nil {
		e.server.Members = data.members
		e.server.BeforeAdd = func(ctx context.Context) error { return data.beforeAdd(ctx, leader) }
	}
	key, err := identity(cfg)
	if err != nil {
		return nodeclaims.Doors{}, err
	}
	return nodeclaims.Doors{
		Kubeconfig: cfg.Dirs.ServerConfig("admin.kubeconfig"),
		Node:       cfg.Node.Name, IPs: cfg.Node.IPs, Key: key,
		Tokens: func() ([]joinserver.Token, error) { return startedWith(cfg) },
		Open:   func() { e.once.Do(func() { close(e.open) }) },
	}, nil
}

func identity(cfg config.Config) (string, error) {
	key, err := pki.Identity(cfg.Dirs)
	if err != nil {
		return "", fmt.Errorf("reading the node's key: %w", err)
	}
	return key, nil
}

// isOwn is an error if another machine has this server's node name.
func (e *entrance) isOwn(ctx context.Context, cfg config.Config) error {
	key, err := identity(cfg)
	if err != nil {
		return err
	}
	return joinserver.Claims{Client: e.server.Client}.Check(ctx, cfg.Node.Name, key)
}

// startedWith are the tokens that the server was given for others to join with.
func startedWith(cfg config.Config) ([]joinserver.Token, error) {
	var all []joinserver.Token
	for _, given := range []struct {
		file string
		as   joinserver.Token
	}{
		{cfg.Dirs.Token(), joinserver.Token{Role: config.Server, Description: "--token of the servers"}},
		{cfg.Dirs.AgentToken(), joinserver.Token{Role: config.Agent, Description: "--agent-token of the servers"}},
	} {
		t, err := token.Read(given.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		given.as.ID, given.as.Secret = t.ID, t.Secret
		all = append(all, given.as)
	}
	return all, nil
}
