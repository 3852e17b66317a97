package servicelb

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Ports reports which ports are in use on a node, and answers which of the requested ports are.
type Ports struct {
	Node *kube.OwnNode
	// Kubeconfig is the kubelet's, which may change its own Node and list the pods on it.
	Kubeconfig string

	listening func([]port, []netip.Addr) ([]socket, map[corev1.Protocol]error) // the function of this name; replaced in tests
	names     map[uint32]string                                                // of the processes that hold the sockets, as of the last check
}

// checkInterval is how often a node checks the ports again, because processes come and go.
// retryInterval applies while the API server does not list the host ports of pods.
const (
	checkInterval = 60 * time.Second
	retryInterval = 5 * time.Second
)

// mostSockets limits the annotation with the ports in use, which is at most 256 KiB with all others of a Node.
const mostSockets = 1000

// Run answers queries until ctx is done. It is ready at once.
func (p Ports) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(p.Kubeconfig)
	if err != nil {
		return err
	}
	p.listening = listening
	ready()
	p.run(kube.WithComponent(ctx, "lb-ports"), client)
	return nil
}

func (p *Ports) run(ctx context.Context, client kubernetes.Interface) {
	var looked struct {
		next  time.Time // when to check again
		about string    // the query and the node's addresses
		text  string    // the answer
	}
	for {
		node, changed := p.Node.Get()
		var again <-chan time.Time
		if node != nil {
			asked := node.Annotations[askedAnnotation]
			if about := fmt.Sprint(asked, nodeAddresses(node)); about != looked.about || time.Until(looked.next) <= 0 {
				text, valid := p.look(ctx, client, node, asked)
				looked.next, looked.about, looked.text = time.Now().Add(valid), about, text
			}
			if looked.text != node.Annotations[heldAnnotation] {
				if err := annotate(ctx, client, p.Node.Name, heldAnnotation, looked.text); err != nil && ctx.Err() == nil {
					logrus.WithField("component", "lb-ports").WithError(err).Warn("trying again")
					again = time.After(5 * time.Second)
				}
			}
			if again == nil {
				again = time.After(time.Until(looked.next))
			}
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// look returns the ports in use with the answer to a query, and how long it is valid. It does not list ports that could not
// be checked among those it is about, because such ports would count as free.
func (p *Ports) look(ctx context.Context, client kubernetes.Interface, node *corev1.Node, asked string) (text string, valid time.Duration) {
	valid = checkInterval
	log, level := logrus.WithField("component", "lb-ports"), logrus.WarnLevel
	if asked == "" { // nobody waits for it
		level = logrus.DebugLevel
	}
	a := answer{Held: map[string]string{}}
	var own []netip.Addr
	for _, at := range nodeAddresses(node) {
		own = append(own, at.Addr)
	}
	wanted := parsePorts(asked)
	sockets, unseen := p.listening(wanted, own)
	if len(sockets) > mostSockets {
		log.Logf(level, "%d sockets listen on this node; of those that no Service asks for, the first %d count", len(sockets), mostSockets)
		rest := sockets[mostSockets:]
		sockets = append(sockets[:mostSockets:mostSockets], slices.DeleteFunc(rest, func(s socket) bool { return !slices.Contains(wanted, s.port) })...)
	}
	for _, err := range unseen {
		log.WithError(err).Log(level, "cannot see which ports are in use")
	}
	if slices.ContainsFunc(sockets, func(s socket) bool { return p.names[s.inode] == "" }) {
		p.names = holders(sockets) // it reads /proc of all processes
	}
	for _, s := range sockets {
		a.Held[s.port.String()] = p.names[s.inode]
	}
	pods, err := p.hostPorts(ctx, client, node.Name)
	if err != nil {
		log.WithError(err).Log(level, "cannot see which pods have host ports")
		valid = retryInterval
	}
	for at, pod := range pods {
		a.Held[at.String()] = pod
	}
	a.Asked = formatPorts(slices.DeleteFunc(wanted, func(w port) bool { return a.Held[w.String()] == "" && (err != nil || unseen[w.protocol] != nil) }))
	if a.NAT, err = natAddresses(node); err != nil {
		log.WithError(err).Log(level, "cannot see the addresses of the interfaces")
	}
	data, err := json.Marshal(a)
	if err != nil {
		log.WithError(err).Log(level, "cannot answer")
		return "", valid
	}
	return string(data), valid
}

// hostPorts returns the host ports of the pods on this node, and the pods that have them.
func (p Ports) hostPorts(ctx context.Context, client kubernetes.Interface, node string) (map[port]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), ResourceVersion: "0",
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of this node: %w", err)
	}
	out := map[port]string{}
	for _, pod := range pods.Items {
		if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue // its sockets are visible on the node, or it has none
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, cp := range c.Ports {
				if cp.HostPort > 0 {
					out[port{cp.HostPort, protocolOf(cp.Protocol)}] = fmt.Sprintf("pod %s/%s (hostPort)", pod.Namespace, pod.Name)
				}
			}
		}
	}
	return out, nil
}

// natAddresses returns the external addresses of the node that none of its interfaces has.
func natAddresses(node *corev1.Node) ([]netip.Addr, error) {
	here, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range nodeAddresses(node) {
		has := slices.ContainsFunc(here, func(h net.Addr) bool { return strings.HasPrefix(h.String(), a.String()+"/") })
		if a.external && !has {
			out = append(out, a.Addr)
		}
	}
	return out, nil
}
