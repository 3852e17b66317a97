package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/certificates"
	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/kubernetes/kubelet"
)

// credentials are the kubeconfigs with which the components of a node call the API. On a server the front has created all
// certificates. An agent got one certificate when it joined, with which its kubelet requests its own.
type credentials struct {
	kubelet string // can change the own Node
	node    string // can read what all nodes read
	reader  string // can read the own Node from the start on

	bootstrap string            // "" on a server
	identity  *kubelet.Identity // nil on a server
}

func credentialsOf(cfg config.Config) credentials {
	file := cfg.Dirs.NodeConfig
	c := credentials{kubelet: file("kubelet.kubeconfig"), node: file("node.kubeconfig")}
	if cfg.Role == config.Server {
		c.reader = c.kubelet
		return c
	}
	c.reader, c.bootstrap = c.node, c.node
	c.identity = kubelet.NewIdentity()
	return c
}

// add adds the components that renew an agent's certificates. It returns the unit that is ready when the kubeconfig of the
// kubelet can be used. api is ready when the API serves this node.
func (c credentials) add(g *lifecycle.Group, cfg config.Config, gate *kube.APIGate, api *lifecycle.Unit) *lifecycle.Unit {
	if c.identity == nil {
		return api
	}
	g.Add("node-certificate", certificates.AgentRenewal{
		Due:       func() (due, expires time.Time, err error) { return pki.NodeCert(cfg) },
		Renew:     func(ctx context.Context) error { return renew(ctx, cfg) },
		Reachable: gate.Opened(),
		Look:      func(ctx context.Context) bool { return join.Replaced(ctx, cfg) },
		Every:     time.Minute,
	})
	return g.Add("kubelet-identity", c.identity, api)
}

// admitted asks the servers whether this machine is still a node of the cluster, and returns the refusal if the node was
// removed or another machine has its name. Without this check the kubelet would create the Node again.
func admitted(ctx context.Context, cfg config.Config) error {
	client, err := join.AsNode(cfg)
	if err != nil {
		return err
	}
	var denied error
	err = lifecycle.Until(ctx, "a server to know this node", func(ctx context.Context) error {
		_, err := client.Cluster(ctx)
		if errors.As(err, new(*join.Denied)) && expired(cfg) { // while it ran, or before its clock was right
			if err = renew(ctx, cfg); err == nil {
				_, err = client.Cluster(ctx)
			}
		}
		if errors.As(err, new(*join.Denied)) || exitcode.ClassOf(err) == exitcode.Removed {
			denied = err
			return nil
		}
		return err
	})
	return cmp.Or(err, denied)
}

func expired(cfg config.Config) bool {
	_, expires, err := pki.NodeCert(cfg)
	return err == nil && time.Now().After(expires)
}

// renew requests the node's next certificate from the servers.
func renew(ctx context.Context, cfg config.Config) error {
	client, err := join.AsNode(cfg)
	if err != nil {
		return err
	}
	return join.Renew(ctx, cfg, client)
}
