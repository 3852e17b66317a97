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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Ports answers on a node which of the ports that Services want are in use on it.
type Ports struct {
	Node *kube.OwnNode
	// Kubeconfig is the kubelet's: it may change its own node, and list the pods on it.
	Kubeconfig string

	listening func([]port, []netip.Addr) ([]socket, map[corev1.Protocol]error) // as the function of this name
}

// lookEvery is how often a node looks again while it is asked: what uses a port may have come later, or gone.
// lookSoon is for when the API server did not say which host ports pods have.
const (
	lookEvery = 60 * time.Second
	lookSoon  = 5 * time.Second
)

// Run works until ctx is done, at changes of the Node. It is ready at once.
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

func (p Ports) run(ctx context.Context, client kubernetes.Interface) {
	var looked struct {
		next  time.Time // when to look again
		about string    // the question and the node's addresses
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
				if err := p.say(ctx, client, looked.text); err != nil && ctx.Err() == nil {
					logrus.WithField("component", "lb-ports").WithError(err).Warn("trying again")
					again = time.After(5 * time.Second)
				}
			}
			if asked != "" && again == nil {
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

// look is the answer to a question, "" to none, and how long it is good for. Ports of which it cannot be found out
// whether they are in use are left out of what it is about: to say nothing of them would be to say that they are free.
func (p Ports) look(ctx context.Context, client kubernetes.Interface, node *corev1.Node, asked string) (text string, valid time.Duration) {
	if asked == "" {
		return "", lookEvery
	}
	valid = lookEvery
	log := logrus.WithField("component", "lb-ports")
	a := answer{Held: map[string]string{}}
	var own []netip.Addr
	for _, at := range nodeAddresses(node) {
		own = append(own, at.Addr)
	}
	wanted := parseAsked(asked)
	sockets, unseen := p.listening(wanted, own)
	for _, err := range unseen {
		log.WithError(err).Warn("cannot see which ports are in use")
	}
	names := holders(sockets)
	for _, s := range sockets {
		a.Held[s.port.String()] = names[s.inode]
	}
	pods, err := p.hostPorts(ctx, client, node.Name)
	if err != nil {
		log.WithError(err).Warn("cannot see which pods have host ports")
		valid = lookSoon
	}
	for _, w := range wanted {
		if pod := pods[w]; pod != "" {
			a.Held[w.String()] = pod
		}
	}
	a.Asked = spell(slices.DeleteFunc(wanted, func(w port) bool { return a.Held[w.String()] == "" && (err != nil || unseen[w.protocol] != nil) }))
	if a.NAT, err = elsewhere(node); err != nil {
		log.WithError(err).Warn("cannot see the addresses of the interfaces")
	}
	data, err := json.Marshal(a)
	if err != nil {
		log.WithError(err).Warn("cannot answer")
		return "", valid
	}
	return string(data), valid
}

// hostPorts are the ports of the node that pods have, and which pods.
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
			continue // its sockets are seen, or it has none
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

// elsewhere are the external addresses of the node that none of its interfaces has.
func elsewhere(node *corev1.Node) ([]netip.Addr, error) {
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

// say writes an answer into the own Node; "" removes the last.
func (p Ports) say(ctx context.Context, client kubernetes.Interface, text string) error {
	value := &text
	if text == "" {
		value = nil
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]*string{heldAnnotation: value}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err = client.CoreV1().Nodes().Patch(ctx, p.Node.Name, types.MergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("saying which ports of this node are in use: %w", err)
	}
	return nil
}
