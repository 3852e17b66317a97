// Package nodeclaims maintains what machines join with. On every server TokenPublisher creates the tokens with which the server
// was started, and claims its node name. Package endpoint answers machines that join.
package nodeclaims

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// TokenPublisher publishes a server's tokens and then opens it to machines that join.
type TokenPublisher struct {
	// Kubeconfig is an administrator's: creating tokens means having all rights.
	Kubeconfig string
	// Node is the server's own name as a node, IPs are its addresses, and Key and KubeletKey are the fingerprints of its keys.
	Node            string
	IPs             []netip.Addr
	Key, KubeletKey string
	// Tokens returns the tokens with which the server was started.
	Tokens func() ([]endpoint.Token, error)
	// Open is called once machines can join.
	Open func()
}

// requestTimeout limits one request.
const requestTimeout = 10 * time.Second

// Run is ready once machines can join.
func (p TokenPublisher) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(p.Kubeconfig)
	if err != nil {
		return err
	}
	log := logrus.WithField("component", "join")
	tokens, err := p.Tokens()
	if err != nil {
		return err
	}
	err = lifecycle.Until(ctx, "the tokens that the server was started with", func(ctx context.Context) error {
		return endpoint.StartedWith(ctx, client, p.Node, tokens, log)
	})
	if err != nil {
		return err
	}
	var mine bool
	claims := endpoint.Claims{Client: client, Log: log}
	err = lifecycle.Until(ctx, "the claim on the node name", func(ctx context.Context) (err error) {
		if mine, err = claims.Adopt(ctx, p.Node, p.Key, p.mine); err != nil || !mine {
			return err
		}
		return claims.Allow(ctx, p.Node, p.Key, p.KubeletKey) // the server has signed it itself
	})
	if err != nil {
		return err
	}
	if !mine { // not an error: it would end the control plane
		log.Errorf("node name %s is another machine's, or this server was removed: give this server another name with --node-name, or run coracle "+
			"reset and join again with a token", p.Node)
	}
	p.Open()
	ready()
	daily := time.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for {
		if err := claims.Tidy(ctx); err != nil && ctx.Err() == nil {
			log.WithError(err).Warn("trying again tomorrow")
		}
		select {
		case <-daily.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// mine reports whether a Node whose name has no claim, or one with another key, is this server: after a restore on new hardware,
// or if the first server's Node was created before its claim. With a claim the addresses are not sufficient, because kubelets
// report those themselves; the label, which no kubelet can set, must be there too.
func (p TokenPublisher) mine(node *corev1.Node, claimed bool) bool {
	return (!claimed || kube.IsServer(node)) && slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return slices.ContainsFunc(p.IPs, func(ip netip.Addr) bool { return a.Address == ip.String() })
	})
}
