// Package servicelb makes Services of type LoadBalancer work without anything that balances: such a Service gets the
// addresses of the nodes, and kube-proxy on every node takes what comes to them for the Service's ports. No pod runs
// for it, and nothing but the Service's own status is kept.
//
// It has two halves. Balancers, on the server that leads, decides which nodes serve which Service: plan is a function
// of what the API says. Ports, on every node, says which of the ports that Services want are in use there already:
// kube-proxy would take them away from whoever listens.
//
// They talk by two annotations of the Node, see question.go. Nothing of this exists while there is no such Service,
// but for one empty watch.
package servicelb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Class is the loadBalancerClass of Services that are ours and no other balancer's. Those without a class are ours too.
const Class = "coracle.io/node"

// Balancers gives Services the addresses of nodes, and takes them back. It runs on one server.
type Balancers struct {
	// Kubeconfig may watch Services, Nodes and EndpointSlices, patch the status of Services, and Nodes, and create Events.
	Kubeconfig string
	// Reserved are ports that nobody gets.
	Reserved []Reserved
	// NodePorts is the range of NodePorts, FIRST-LAST.
	NodePorts string
	// Self is the node of this server, which is never asked whether it is alive.
	Self string
	// Ping asks a node for a sign of life.
	Ping func(ctx context.Context, node string) error
	// NoConnection reports whether an error of Ping means that the node cannot be asked, which is no proof of its death.
	NoConnection func(error) bool
	// Report is told about all Services after each change.
	Report func([]LoadBalancer)
}

// Reserved is a port of nodes that coracle itself needs.
type Reserved struct {
	Port     uint16
	Protocol corev1.Protocol
	Holder   string // in words
	// ServersOnly says that it is not needed on agents.
	ServersOnly bool
}

// Pauses after the API server refused a write.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Run works until ctx is done. It is ready at once: nobody waits for it.
func (b Balancers) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(b.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	return b.run(kube.WithComponent(ctx, "servicelb"), client)
}

func (b Balancers) run(ctx context.Context, client kubernetes.Interface) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	nodePorts, err := parseRange(b.NodePorts)
	if err != nil {
		return err
	}
	f := newFeed(client)
	c := &controller{
		Balancers: b, client: client, feed: f, inRange: nodePorts,
		alive: &pulses{ping: b.Ping, noConnection: b.NoConnection, changed: f.notify},
		fresh: map[types.UID]*corev1.Service{}, shadowed: map[shadowed]bool{},
	}
	f.start(ctx)
	if !cache.WaitFor(ctx, "", f.services.synced) {
		return nil
	}
	log := logrus.WithField("component", "servicelb")
	pause, tidied := firstPause, false
	for {
		var err error
		if !tidied {
			err = c.tidy(ctx)
			tidied = err == nil
		}
		soon, syncErr := c.sync(ctx)
		err = errors.Join(err, syncErr)
		var again <-chan time.Time
		if err != nil && ctx.Err() == nil {
			log.WithError(err).Warn("trying again")
			if soon == 0 || pause < soon { // what fails does not make the rest wait
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
		case <-again:
		}
	}
}

// parseRange reads FIRST-LAST.
func parseRange(text string) (func(int32) bool, error) {
	var first, last int32
	if _, err := fmt.Sscanf(text, "%d-%d", &first, &last); err != nil {
		return nil, fmt.Errorf("reading the range of NodePorts %q: %w", text, err)
	}
	return func(p int32) bool { return first <= p && p <= last }, nil
}
