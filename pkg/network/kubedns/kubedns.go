// Package kubedns keeps the endpoints of the cluster's DNS Service: the name server of every node. kube-proxy sends
// each pod's queries to its own node, because the Service says so.
package kubedns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// KubeDNS is the keeper of the EndpointSlices.
type KubeDNS struct {
	// Kubeconfig may watch nodes and write EndpointSlices in kube-system.
	Kubeconfig string
	// Network says which backend, and which families the cluster has.
	Network config.Network
	// Disabled removes the endpoints instead: nobody answers.
	Disabled bool
}

// managedBy marks the slices that are ours.
const managedBy = "coracle"

// Pauses after the API server refused a write.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Run follows the nodes until ctx is done. It is ready when the endpoints of the nodes that are there are written.
func (k KubeDNS) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(k.Kubeconfig)
	if err != nil {
		return err
	}
	f := k.follow(kube.WithComponent(ctx, "kube-dns"), client)
	if !cache.WaitFor(ctx, "", f.synced...) {
		return nil
	}
	log := logrus.WithField("component", "kube-dns")
	pause := firstPause
	for {
		err := k.sync(ctx, client, f)
		var again <-chan time.Time
		switch {
		case err == nil:
			ready()
			pause = firstPause
		case ctx.Err() == nil:
			log.WithError(err).Debug("trying again")
			again = time.After(pause)
			pause = min(pause*2, lastPause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		case <-again:
		}
	}
}

// following is what is known of the cluster.
type following struct {
	nodes, slices cache.Store
	synced        []cache.DoneChecker
	changed       chan struct{}
}

func (k KubeDNS) follow(ctx context.Context, client *kubernetes.Clientset) *following {
	f := &following{changed: make(chan struct{}, 1)}
	notify := func(any) {
		select {
		case f.changed <- struct{}{}:
		default: // one is waiting already
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, obj any) { notify(obj) }, DeleteFunc: notify,
	}
	run := func(options cache.InformerOptions) cache.Store {
		options.Handler = handler
		store, controller := cache.NewInformerWithOptions(options)
		f.synced = append(f.synced, controller.HasSyncedChecker())
		go controller.RunWithContext(ctx)
		return store
	}
	f.nodes = run(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Transform:     k.trimNode,
	})
	ours := labels.SelectorFromSet(k.labels()).String()
	f.slices = run(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(client.DiscoveryV1().RESTClient(), "endpointslices",
			clusterdns.Namespace, func(o *metav1.ListOptions) { o.LabelSelector = ours }),
		ObjectType: &discoveryv1.EndpointSlice{},
	})
	return f
}

// trimNode keeps what listen reads: a node's heartbeat then changes nothing that costs memory.
func (k KubeDNS) trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	small := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs},
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			small.Status.Addresses = append(small.Status.Addresses, a)
		}
	}
	return small, nil
}

func (k KubeDNS) labels() map[string]string {
	return map[string]string{
		discoveryv1.LabelManagedBy:   managedBy,
		discoveryv1.LabelServiceName: clusterdns.Service,
	}
}

// sync writes the slices that are not as they should be.
func (k KubeDNS) sync(ctx context.Context, client kubernetes.Interface, f *following) error {
	var nodes []node
	if !k.Disabled {
		for _, obj := range f.nodes.List() {
			n := obj.(*corev1.Node)
			nodes = append(nodes, node{name: n.Name, addrs: k.listen(n)})
		}
	}
	var live []*discoveryv1.EndpointSlice
	for _, obj := range f.slices.List() {
		live = append(live, obj.(*discoveryv1.EndpointSlice))
	}
	plan := k.plan(nodes, live)
	slices := client.DiscoveryV1().EndpointSlices(clusterdns.Namespace)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var errs []error
	for _, s := range plan.create {
		_, err := slices.Create(ctx, s, metav1.CreateOptions{FieldManager: managedBy})
		errs = append(errs, wrap("creating", s, err))
	}
	for _, s := range plan.update {
		_, err := slices.Update(ctx, s, metav1.UpdateOptions{FieldManager: managedBy})
		errs = append(errs, wrap("updating", s, err))
	}
	for _, s := range plan.remove {
		err := slices.Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
		errs = append(errs, wrap("removing", s, err))
	}
	return errors.Join(errs...)
}

func wrap(doing string, s *discoveryv1.EndpointSlice, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s EndpointSlice %s: %w", doing, s.Name, err)
}

// listen is where a node's name server answers.
func (k KubeDNS) listen(n *corev1.Node) []netip.Addr {
	var cidrs []netip.Prefix
	for _, text := range n.Spec.PodCIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			cidrs = append(cidrs, cidr)
		}
	}
	var ips []netip.Addr
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			ips = append(ips, ip)
		}
	}
	var out []netip.Addr
	for _, l := range clusterdns.Listen(k.Network.Backend, cidrs, ips) {
		out = append(out, l.Addr())
	}
	return out
}
