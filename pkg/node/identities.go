package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/nodecert"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/kubernetes/kubelet"
)

// identities say as whom the parts of a node call the API: the kubeconfigs. A server makes all certificates itself, in
// the front. An agent has joined with one, and its kubelet asks for its own with that.
type identities struct {
	kubelet string // may change the own Node
	node    string // may read what all nodes read
	reader  string // may read the own Node from the start on

	bootstrap string            // "" on a server
	has       *kubelet.Identity // nil on a server
}

func identitiesOf(cfg config.Config) identities {
	file := cfg.Dirs.NodeConfig
	who := identities{kubelet: file("kubelet.kubeconfig"), node: file("node.kubeconfig")}
	if cfg.Role == config.Server {
		who.reader = who.kubelet
		return who
	}
	who.reader, who.bootstrap = who.node, who.node
	who.has = kubelet.NewIdentity()
	return who
}

// add enters what keeps an agent's identities, and returns the unit after which others may be the kubelet. api is
// ready when the API serves this node.
func (who identities) add(g *lifecycle.Group, cfg config.Config, gate *kube.APIGate, api *lifecycle.Unit) *lifecycle.Unit {
	if who.has == nil {
		return api
	}
	g.Add("node-certificate", nodecert.Renewal{
		Due:       func() (due, expires time.Time, err error) { return pki.NodeCert(cfg) },
		Renew:     func(ctx context.Context) error { return renew(ctx, cfg) },
		Reachable: gate.Opened(),
	})
	return g.Add("kubelet-identity", who.has, api)
}

// admitted asks the servers whether this machine is still the node that it was: not if the node was removed, or if
// another machine has its name. Its kubelet would make the Node again.
func admitted(ctx context.Context, cfg config.Config) error {
	client, err := apiAsNode(cfg)
	if err != nil {
		return err
	}
	var denied *join.Denied
	err = lifecycle.Until(ctx, "a server to know this node", func(ctx context.Context) error {
		_, err := client.Cluster(ctx)
		if errors.As(err, &denied) {
			return nil
		}
		return err
	})
	if err == nil && denied != nil {
		return denied
	}
	return err
}

// apiAsNode asks the servers that the balancer knows, with the node's own certificate.
func apiAsNode(cfg config.Config) (join.Client, error) {
	ca, err := os.ReadFile(cfg.Dirs.NodeCA())
	if err != nil {
		return join.Client{}, fmt.Errorf("reading the cluster's CA certificate: %w", err)
	}
	cert, key := pki.NodeFiles(cfg.Dirs)
	return join.Client{Server: "https://" + apiAddress(cfg), CA: ca, CertFile: cert, KeyFile: key}, nil
}

// renew asks the servers that the balancer knows for the node's next certificate.
func renew(ctx context.Context, cfg config.Config) error {
	client, err := apiAsNode(cfg)
	if err != nil {
		return err
	}
	return join.Renew(ctx, cfg, client)
}
