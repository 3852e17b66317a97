// Package kubedns writes the EndpointSlices of the cluster's DNS Service, with the name server of every node as an endpoint. The Service
// has internalTrafficPolicy Local, so kube-proxy sends the queries of pods to their own node.
package kubedns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// KubeDNS is the controller of the EndpointSlices.
type KubeDNS struct {
	// Kubeconfig has permission to watch nodes and to write EndpointSlices in kube-system.
	Kubeconfig string
	// Network has the backend and the address families of the cluster.
	Network config.Network
	// Disabled removes all endpoints.
	Disabled bool
}

// managedBy is the label and field manager of the slices.
const managedBy = "coracle"

// Pauses between tries after an error.
const (
	retryMin = 50 * time.Millisecond
	retryMax = 30 * time.Second
)

// Run works until ctx is done. It is ready when the endpoints of all nodes were written once.
func (k KubeDNS) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, k.Kubeconfig)
	if err != nil {
		return err
	}
	f := k.follow(kube.WithComponent(ctx, "kube-dns"), client)
	defer context.AfterFunc(ctx, f.queue.ShutDown)()
	if !cache.WaitFor(ctx, "", f.synced...) {
		return nil
	}
	f.queue.Add(struct{}{})
	kube.Work(ctx, "kube-dns", f.queue, func(ctx context.Context, _ struct{}) error {
		err := k.sync(ctx, client, f)
		if err == nil {
			ready()
		}
		return err
	})
	return nil
}

// watched are the caches of the watched objects.
type watched struct {
	nodes, slices cache.Store
	synced        []cache.DoneChecker
	queue         workqueue.TypedRateLimitingInterface[struct{}] // has the only item after a change
}

func (k KubeDNS) follow(ctx context.Context, client *kubernetes.Clientset) *watched {
	f := &watched{queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[struct{}](retryMin, retryMax))}
	notify := func(any) { f.queue.Add(struct{}{}) }
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
		Transform:     kube.Trim(trimNode),
	})
	ours := labels.SelectorFromSet(k.labels()).String()
	f.slices = run(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(client.DiscoveryV1().RESTClient(), "endpointslices",
			clusterdns.Namespace, func(o *metav1.ListOptions) { o.LabelSelector = ours }),
		ObjectType: &discoveryv1.EndpointSlice{},
	})
	return f
}

// trimNode keeps only what listen reads.
func trimNode(full, small *corev1.Node) {
	small.Spec = corev1.NodeSpec{PodCIDR: full.Spec.PodCIDR, PodCIDRs: full.Spec.PodCIDRs}
	for _, a := range full.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			small.Status.Addresses = append(small.Status.Addresses, a)
		}
	}
}

func (k KubeDNS) labels() map[string]string {
	return map[string]string{
		discoveryv1.LabelManagedBy:   managedBy,
		discoveryv1.LabelServiceName: clusterdns.Service,
	}
}

// sync writes the slices that differ from the plan.
func (k KubeDNS) sync(ctx context.Context, client kubernetes.Interface, f *watched) error {
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

// listen returns the addresses of a node's name server, which only the node itself uses.
func (k KubeDNS) listen(n *corev1.Node) []netip.Addr {
	var ips []netip.Addr
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			ips = append(ips, ip)
		}
	}
	var subnets []netip.Prefix
	if kube.InCluster(n, k.Network.ClusterCIDRs) {
		subnets = kube.PodCIDRs(n)
	}
	var out []netip.Addr
	for _, l := range clusterdns.Listen(k.Network.Backend, subnets, ips) {
		out = append(out, l.Addr())
	}
	return out
}
