package announcer

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Timing of the looks for other machines that have an announced address. Nothing waits for them, and whatever they find, the address stays: otherwise
// anybody on the wire could take it away.
const (
	// settled is after how long with an address the first look is: by then the kernel of a former node has removed it, and neighbours know this one.
	settled = (lifetime + 2) * time.Second
	// lookAgain is how often one address is looked for. With many addresses it is less often, as there is one look at a time.
	lookAgain = time.Minute
	// warnAgain is how often there is a warning about one address.
	warnAgain = time.Hour
)

// finding is the result of a look.
type finding struct {
	*placed
	stranger net.HardwareAddr // nil if nobody else has the address
	err      error
}

// due returns the address that is looked for next, nil if none is due.
func (r *running) due(now time.Time) (next *placed) {
	for _, p := range r.has {
		if !p.adopted && now.Sub(p.since) >= settled && now.Sub(p.probed) >= lookAgain && (next == nil || p.probed.Before(next.probed)) {
			next = p
		}
	}
	return next
}

// probe starts a look, unless there is one or none is due.
func (r *running) probe(ctx context.Context) {
	now := time.Now()
	p := r.due(now)
	if p == nil || r.probing {
		return
	}
	p.probed, r.probing = now, true
	at := p.place
	r.tasks.Go(func() {
		f := finding{placed: p}
		f.stranger, f.err = at.stranger(ctx)
		select {
		case r.found <- f:
		case <-ctx.Done():
		}
	})
}

// judge warns if another machine has an address of this node. Who has it after this node does not count.
func (r *running) judge(ctx context.Context, f finding) {
	r.probing = false
	now := time.Now()
	held, _ := r.tally.Held(now)
	if f.err != nil {
		r.log.WithError(f.err).Debugf("looking for other machines that have %s", f.address)
	}
	if f.stranger == nil || r.has[f.address] != f.placed || !slices.Contains(held, f.address) || now.Sub(f.warned) < warnAgain {
		return
	}
	f.warned = now
	message := fmt.Sprintf("%s, which node %s announces on %s, is also the address of another machine with the hardware address %s: packets go to either of them; "+
		"give that machine another address, or take this one out of --lb-pool or --vip", f.address, r.Node.Name, f.link.Attrs().Name, f.stranger)
	r.log.Warn(message)
	r.tasks.Go(func() {
		client, err := kube.Client(r.Node.Kubeconfig)
		if err == nil {
			err = r.event(ctx, client, f.address.String(), message)
		}
		if err != nil {
			r.log.WithError(err).Debugf("writing an event about %s", f.address)
		}
	})
}

// eventsTimeout bounds the time for all events about an address, which any number of Services can share.
const eventsTimeout = 10 * time.Second

// event writes a Warning event about the Services that have an address, or about this node if none has it.
func (a Announcer) event(ctx context.Context, client kubernetes.Interface, address, message string) error {
	ctx, cancel := context.WithTimeout(ctx, eventsTimeout)
	defer cancel()
	services, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // from the API server's memory
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	var about []corev1.ObjectReference
	for _, s := range services.Items {
		if slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool { return i.IP == address }) {
			about = append(about, corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: s.UID})
		}
	}
	if node, _ := a.Node.Get(); len(about) == 0 && node != nil {
		about = append(about, corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
	}
	source := corev1.EventSource{Component: "coracle-announcer", Host: a.Node.Name}
	for _, object := range about {
		if err := kube.SendEvent(ctx, client, source, object, corev1.EventTypeWarning, "AddressInUse", message); err != nil {
			return err
		}
	}
	return nil
}
