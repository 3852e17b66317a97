// Package servicelb implements Services of type LoadBalancer without a load balancer: such a Service gets the addresses
// of nodes, and kube-proxy on every node accepts the packets to these addresses and the Service's ports. There is no pod,
// and no state besides the Service's status.
//
// It has two components. Balancers, on the server that leads, assigns nodes to Services; its plan is a pure function of
// the objects in the API. Ports, on every node, reports which of the requested ports are in use on the node already,
// because kube-proxy would take them away from the process that listens.
//
// They communicate by two annotations of the Node, see portquery.go. While there is no such Service, they only hold one
// empty watch.
package servicelb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Class is the loadBalancerClass that this package serves. It also serves Services without a class.
const Class = "coracle.io/node"

// Balancers assigns the addresses of nodes to Services, and removes them. It runs on one server.
type Balancers struct {
	// Kubeconfig may watch Services, Nodes and EndpointSlices, patch the status of Services, and Nodes, and create Events.
	Kubeconfig string
	// Reserved are ports that no Service gets.
	Reserved []Reserved
	// Pools are addresses that belong to no node. Without any, Services get addresses of nodes.
	Pools Pools
	// Gateways are those that get addresses of the pools as well.
	Gateways *addon.GatewayAddresses
	// NodePorts is the range of NodePorts, FIRST-LAST.
	NodePorts string
	// Self is the node of this server, which is never pinged.
	Self string
	// Ping asks a node for a sign of life.
	Ping func(ctx context.Context, node string) error
	// NoConnection reports whether an error of Ping only means that the node has no connection to this server.
	NoConnection func(error) bool
	// Report is called with all Services after each change.
	Report func([]LoadBalancer)
}

// Reserved is a port that coracle itself uses on nodes.
type Reserved struct {
	Port     uint16
	Protocol corev1.Protocol
	Holder   string // for messages
	// ServersOnly is for ports that are not used on agents.
	ServersOnly bool
}

// Pauses after the API server refused a write.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Run works until ctx is done. It is ready at once, because no component depends on it.
func (b Balancers) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, b.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	return b.run(kube.WithComponent(ctx, "servicelb"), client)
}

func (b Balancers) run(ctx context.Context, client kubernetes.Interface) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	nodePorts, err := utilnet.ParsePortRange(b.NodePorts)
	if err != nil {
		return fmt.Errorf("reading the range of NodePorts: %w", err)
	}
	f := newFeed(client)
	c := &controller{
		Balancers: b, client: client, feed: f, inRange: nodePorts.Contains,
		alive: &liveness{ping: b.Ping, noConnection: b.NoConnection, changed: f.notify},
		fresh: map[types.UID]*corev1.Service{}, shadowed: map[shadowed]bool{},
	}
	f.start(ctx)
	if err := c.Pools.follow(ctx, b.Kubeconfig, f.notify); err != nil {
		return err
	}
	if !cache.WaitFor(ctx, "", f.services.synced) {
		return nil
	}
	defer b.Gateways.Decide(nil)
	pause := firstPause
	for {
		next := b.Gateways.Next()
		var err error
		if f.left.Swap(false) {
			err = c.cleanUp(ctx)
			f.left.CompareAndSwap(false, err != nil)
		}
		soon, syncErr := c.sync(ctx)
		err = errors.Join(err, syncErr)
		var again <-chan time.Time
		if err != nil && ctx.Err() == nil {
			logrus.WithField("component", "servicelb").WithError(err).Warn("trying again")
			if soon == 0 || pause < soon { // a failed write does not delay the rest
				soon = pause
			}
			pause = min(pause*2, lastPause)
		} else {
			pause = firstPause
		}
		if soon > 0 {
			again = time.After(soon)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		case <-next:
		case <-again:
		}
	}
}
