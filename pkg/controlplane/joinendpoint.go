package controlplane

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeclaims"
	"github.com/coracle-dev/coracle/pkg/cluster/nodeguard"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/pkg/kubernetes/apiserver"
	"github.com/coracle-dev/coracle/pkg/kubernetes/leaderelection"
	"github.com/coracle-dev/coracle/pkg/network/addressvote"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

// joinEndpoint serves the paths under which other machines join. The API server answers them once open is closed.
type joinEndpoint struct {
	server *endpoint.Server
	hub    *tunnel.Hub // of the nodes' tunnels
	voter  *addressvote.Voter
	guard  *nodeguard.Guard
	shares *addon.GatewayShares // of agents that are gateways
	open   chan struct{}
	once   sync.Once
}

func newJoinEndpoint(cfg config.Config) (*joinEndpoint, error) {
	dirs := cfg.Dirs
	client, err := kube.Client(dirs.ServerConfig("coracle.kubeconfig"))
	if err != nil {
		return nil, err
	}
	hub := &tunnel.Hub{}
	shares := addon.NewGatewayShares()
	var gateways http.Handler
	if !cfg.Disabled("gateway") {
		gateways = &endpoint.Gateways{Client: client, Share: shares.Of}
	}
	return &joinEndpoint{shares: shares, open: make(chan struct{}), hub: hub, voter: addressvote.NewVoter(cfg.API.VIPs), guard: nodeguard.New(hub.Disconnect), server: &endpoint.Server{
		Client:   client,
		Version:  version.Version,
		Own:      netip.AddrPortFrom(cfg.API.Advertise, cfg.API.Port).String(),
		CA:       func() ([]byte, error) { return os.ReadFile(pkiFile(dirs, "ca.crt")) },
		Settings: cfg.Shared,
		Keys:     func() (map[string][]byte, error) { return pki.ReadKeys(dirs) },
		Sign: func(csr []byte, node string) ([]byte, error) {
			return pki.SignNode(dirs, csr, node, cfg.CertificateLife)
		},
		Gateway:      gateways,
		Former:       func(cert *x509.Certificate) bool { return pki.SignedByFormer(dirs, cert) },
		BeforeServer: func() error { return markJoined(dirs) },
	}}, nil
}

// markJoined records that the cluster has another server; as another user than root, in a mark that the front takes.
func markJoined(dirs paths.Dirs) error {
	if dirs.Copies == "" {
		return join.MarkJoined(dirs.ServerCluster())
	}
	if paths.Exists(dirs.Joined()) {
		return nil
	}
	return atomicfile.Write(dirs.Joined(), nil, 0o600)
}

// extension adds the paths to the API server.
func (e *joinEndpoint) extension() apiserver.Extension {
	return apiserver.Extension{
		Prefix: join.Prefix, Handler: e.server.Handler(), LongRunning: []string{join.PathTunnel, join.PathAddresses, join.PathGateway},
		Open: e.open, Closed: http.HandlerFunc(endpoint.Closed),
	}
}

// publisher publishes this server's tokens and then opens the endpoint, also to new members of etcd.
func (e *joinEndpoint) publisher(cfg config.Config, data storage, leader *leaderelection.Leadership) (nodeclaims.TokenPublisher, error) {
	if data.members != nil {
		e.server.Members = data.members
		e.server.BeforeAdd = func(ctx context.Context) error { return data.beforeAdd(ctx, leader) }
	}
	key, err := pki.Identity(cfg.Dirs)
	if err != nil {
		return nodeclaims.TokenPublisher{}, err
	}
	kubelet, err := pki.KubeletIdentity(cfg.Dirs)
	if err != nil {
		return nodeclaims.TokenPublisher{}, err
	}
	return nodeclaims.TokenPublisher{
		Kubeconfig: cfg.Dirs.ServerConfig("admin.kubeconfig"),
		Node:       cfg.Node.Name, IPs: cfg.Node.IPs, Key: key, KubeletKey: kubelet,
		Tokens: func() ([]endpoint.Token, error) { return endpoint.GivenTokens(cfg.Dirs) },
		Open: func() {
			e.once.Do(func() {
				e.voter.Open()
				close(e.open)
			})
		},
	}, nil
}

// isOwn returns an error if another machine has this server's node name.
func (e *joinEndpoint) isOwn(ctx context.Context, cfg config.Config) error {
	key, err := pki.Identity(cfg.Dirs)
	if err != nil {
		return err
	}
	return endpoint.Claims{Client: e.server.Client}.Check(ctx, cfg.Node.Name, key)
}

// isServer reports whether a node is known to be a server of the cluster.
func (e *joinEndpoint) isServer(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	node, err := e.server.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
	return err == nil && kube.IsServer(node)
}

// egress makes the endpoint accept the nodes' tunnels and Beats, and the API server use them.
func (e *joinEndpoint) egress(cfg config.Config) apiserver.Egress {
	e.server.Addresses = e.voter.Handler(endpoint.NodeOf, e.isServer, endpoint.WriteRefusal, endpoint.Closed)
	e.server.Tunnel = e.hub.Handler(endpoint.NodeOf, endpoint.WriteRefusal)
	return apiserver.Egress{
		Tunnels: e.hub, Node: cfg.Node.Name, AnyPodAddress: cfg.Network.Backend == config.BackendNone, ClusterCIDRs: cfg.Network.ClusterCIDRs,
	}
}
