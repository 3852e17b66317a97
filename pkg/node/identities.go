package node

import (
	"context"
	"errors"
	"time"

	"github.com/coracle-dev/coracle/pkg/components/kubelet"
	"github.com/coracle-dev/coracle/pkg/components/nodecert"
	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/join"
	"github.com/coracle-dev/coracle/pkg/kube"
	"github.com/coracle-dev/coracle/pkg/lifecycle"
	"github.com/coracle-dev/coracle/pkg/pki"
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

// renew asks the servers that the balancer knows for the node's next certificate.
func renew(ctx context.Context, cfg config.Config) error {
	memory, err := join.Recall(cfg.Dirs.Cluster())
	if err != nil {
		return err
	}
	if len(memory.CA) == 0 {
		return errors.New("the cluster's CA is not known: join again after coracle reset")
	}
	return join.Renew(ctx, cfg, join.Client{Server: "https://" + apiAddress(cfg), CA: memory.CA})
}
