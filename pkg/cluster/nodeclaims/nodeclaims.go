// Package nodeclaims keeps what machines join with. Doors, on every server, makes the tokens that the server was started
// with and then lets machines in; Claims, on one server, forgets which machine had a node name when its Node is gone.
// What a machine that joins is asked and told is package joinserver's business.
package nodeclaims

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/joinserver"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Doors opens a server to machines that join.
type Doors struct {
	// Kubeconfig is an administrator's: who can make tokens can do everything.
	Kubeconfig string
	// Node is the server's own name as a node, IPs are its addresses and Key is the fingerprint of its key.
	Node string
	IPs  []netip.Addr
	Key  string
	// Tokens are what the server was started with.
	Tokens func() ([]joinserver.Token, error)
	// Open is called when machines may come.
	Open func()
}

// patience is how long one request may take.
const patience = 10 * time.Second

// Run opens the doors, which stay open. It is ready then.
func (d Doors) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(d.Kubeconfig)
	if err != nil {
		return err
	}
	log := logrus.WithField("component", "join")
	tokens, err := d.Tokens()
	if err != nil {
		return err
	}
	err = lifecycle.Until(ctx, "the tokens that the server was started with", func(ctx context.Context) error {
		return joinserver.StartedWith(ctx, client, d.Node, tokens, log)
	})
	if err != nil {
		return err
	}
	var mine bool
	err = lifecycle.Until(ctx, "the claim on the node name", func(ctx context.Context) (err error) {
		mine, err = joinserver.Claims{Client: client, Log: log}.Adopt(ctx, d.Node, d.Key, d.mine)
		return err
	})
	if err != nil {
		return err
	}
	if !mine { // the cluster is worth more than the node
		log.Errorf("node name %s is another machine's: give this server another with --node-name", d.Node)
	}
	d.Open()
	ready()
	<-ctx.Done()
	return nil
}

// mine reports whether a Node that was claimed with another key, or never, is this server nevertheless: its data was
// restored, or it is the first and its Node came before its claim. If somebody else has claimed the name the addresses
// are not enough, because nodes say those of themselves.
func (d Doors) mine(node *corev1.Node, claimed bool) bool {
	return (!claimed || node.Labels[controlPlane] == "true") && slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return slices.ContainsFunc(d.IPs, func(ip netip.Addr) bool { return a.Address == ip.String() })
	})
}

// controlPlane is a label that no kubelet can give itself.
const controlPlane = "node-role.kubernetes.io/control-plane"
