// Package networkpolicy enforces NetworkPolicies for the pods of this node with one nft table, and a second one for the bridge.
//
// A packet that is forwarded to or from a local pod that a policy selects passes a chain with the rules of exactly the policies
// that select the pod. Peers are sets of addresses, so the cost per packet depends neither on the number of pods nor on the
// number of policies. While the cluster has no policy there is no table, and only policies are watched.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/cnievents"
)

// NetworkPolicy is the component that enforces network policies on a node.
type NetworkPolicy struct {
	Node          string          // this node's name
	Kubeconfig    string          // may watch policies, namespaces and pods
	API           <-chan struct{} // closed when the API server serves this node
	Network       []netip.Prefix  // the CIDRs of all pods of the cluster
	Bridge        string          // the bridge of this node's pods: cni0
	Socket        string          // on which the CNI plugin sends events
	CRI           string          // the runtime's socket
	Leases        string          // the directory with a file for each pod address of this node
	IsolationFile string          // remembers across reboots in which namespaces pods are isolated
	Report        func(Status)
}

// Run works until ctx is done. It is ready when it accepts events of the CNI plugin. The tables stay, so policies remain in
// force while coracle is stopped.
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
	e.api, e.isolation = n.API, isolationCache(n.IsolationFile)
	e.register()
	for _, a := range pods {
		e.engine.attach(a)
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return cnievents.Serve(ctx, listener, e.handle) })
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
	client, err := kube.Client(n.Kubeconfig)
	if err != nil {
		return err
	}
	policies := client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll)
	err = kube.Await(ctx, func(ctx context.Context) error { // the role comes with coracle's manifests, and informers back off after a refusal
		_, err := policies.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	if err != nil {
		return ifNotDone(ctx, err)
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

// listen makes the socket, which only root may connect to.
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

// Timeouts and intervals.
const (
	syncTimeout    = 5 * time.Second        // how long a pod waits for the first write after a start
	podTimeout     = 500 * time.Millisecond // how long a pod waits until its Pod object was seen
	writeTimeout   = 20 * time.Second       // how long a pod waits for a later write
	sweepDelay     = time.Second            // from the last use of a chain to its deletion
	checkInterval  = 30 * time.Second       // between two checks that the tables and the bridge's settings are still there
	retryMin       = 100 * time.Millisecond
	retryMax       = 10 * time.Second
	bridgeRetryMax = 10 * time.Minute // longest pause between two tries to write the table of the bridge
	nftTimeout     = time.Minute      // of one transaction
)
