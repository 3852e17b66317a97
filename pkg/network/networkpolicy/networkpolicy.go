// Package networkpolicy puts NetworkPolicies in force for the pods of this node, by one nft table of ours.
//
// Each packet that is forwarded to or from a pod of this node which a policy selects goes through a chain with the rules
// of just these policies. Peers are sets of addresses, so that the cost of a packet depends neither on how many pods nor
// on how many policies there are. Without policies in the cluster there is no table, and nothing but one watch.
package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// NetworkPolicy is the node's part in network policies.
type NetworkPolicy struct {
	Node       string          // this node's name
	Kubeconfig string          // of somebody who may watch policies, namespaces and pods
	API        <-chan struct{} // closed when the API server serves this node
	Network    []netip.Prefix  // of all pods of the cluster
	Bridge     string          // of this node's pods: cni0
	Socket     string          // where the CNI plugin tells of pods
	CRI        string          // the runtime's socket
	Leases     string          // the directory with a file for each pod address of this node
	Recall     string          // remembers over a reboot in which namespaces pods are isolated
	Report     func(Status)
}

// Run works until ctx is done; the table stays, and with it what is in force. It is ready when the CNI plugin is
// listened to.
func (n NetworkPolicy) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, component)
	pods, err := sandboxes(ctx, n.CRI, n.Leases)
	if err != nil {
		return err
	}
	listener, err := listen(n.Socket)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	defer listener.Close()

	e := newEnforcer(network{n.Network, n.Bridge}, n.Report, func(family knftables.Family) (knftables.Interface, error) {
		return knftables.New(family, tableName)
	})
	e.api, e.recall = n.API, recall{file: n.Recall}
	e.register()
	for _, a := range pods {
		e.engine.attach(a)
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return cnievents.Serve(ctx, listener, e.notice) })
	ready()
	all.Go(func() error { return n.follow(ctx, e) })
	return all.Wait()
}

// follow waits for the API and then keeps the policies in force.
func (n NetworkPolicy) follow(ctx context.Context, e *enforcer) error {
	select {
	case <-n.API:
	case <-ctx.Done():
		return nil
	}
	if err := kube.AwaitAPI(ctx, n.Kubeconfig, n.Node); err != nil {
		return ifNotDone(ctx, err) // its role is one of coracle's manifests, which are applied while the node starts
	}
	client, err := kube.Client(n.Kubeconfig)
	if err != nil {
		return err
	}
	return e.run(ctx, feed{client: client, node: n.Node})
}

func ifNotDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const component = "network-policy"

func log() logrus.FieldLogger { return logrus.WithField("component", component) }

// listen makes the socket. Only root may speak to it.
func listen(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing the socket of an earlier start: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening to the CNI plugin: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("keeping others from the CNI plugin's socket: %w", err), l.Close())
	}
	return l, nil
}

// How long things may take.
const (
	syncWait    = 5 * time.Second        // a pod waits for the policies to be known after a start
	podWait     = 500 * time.Millisecond // a pod waits for its own object
	writeWait   = 20 * time.Second       // a pod waits for nft
	sweepAfter  = time.Second            // chains of no use are kept
	checkEvery  = 30 * time.Second       // settings that others may change are looked at
	firstPause  = 100 * time.Millisecond
	lastPause   = 10 * time.Second
	guardRest   = 10 * time.Minute // at most, until the table of the bridge is tried again
	nftPatience = time.Minute      // no run of nft takes that long
)
