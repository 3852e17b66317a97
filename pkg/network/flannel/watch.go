package flannel

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// WatchLeases sends the leases of all nodes, and then changes, until ctx is done.
func (m *manager) WatchLeases(ctx context.Context, receiver chan []lease.LeaseWatchResult) error {
	defer close(receiver)
	var nodes cache.Store
	w := watched{manager: m, known: map[string]lease.Lease{}, send: func(kind lease.EventType, l lease.Lease) {
		result := lease.LeaseWatchResult{Events: []lease.Event{{Type: kind, Lease: l}}}
		select {
		case receiver <- []lease.LeaseWatchResult{result}:
		case <-ctx.Done():
		}
	}}
	var guard func()
	nodes, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(m.all.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Transform:     kube.Trim(trimNode),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				w.changed(nil, obj, nodes)
				guard()
			},
			UpdateFunc: func(old, obj any) {
				w.changed(old, obj, nodes)
				if !sameSender(old, obj) {
					guard()
				}
			},
			DeleteFunc: func(obj any) {
				if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = unknown.Obj
				}
				w.changed(obj, nil, nodes)
				guard()
			},
		},
	})
	guard = func() {
		if m.wire != nil && controller.HasSynced() {
			m.wire.set(func() peers { return m.peersOf(nodesIn(nodes)) })
		}
	}
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			return
		}
		guard()
		if err := removeStaleRoutes(m.cidrs, m.others(nodesIn(nodes))); err != nil {
			logrus.WithField("component", "flannel").Warn(err)
		}
	}()
	controller.RunWithContext(ctx)
	return nil
}

// watched are the leases that were sent. It is used by the informer's goroutine only.
type watched struct {
	*manager
	known map[string]lease.Lease // by node
	send  func(lease.EventType, lease.Lease)
}

// changed sends what a change of a Node changes: its own lease, and if its subnets change, those of Nodes whose subnets overlap them. old and
// is are nil for a Node that is new or gone.
func (w *watched) changed(old, is any, store cache.Store) {
	was, _ := old.(*corev1.Node)
	now, _ := is.(*corev1.Node)
	if was != nil && now != nil && slices.Equal(was.Spec.PodCIDRs, now.Spec.PodCIDRs) && maps.Equal(was.Annotations, now.Annotations) {
		return
	}
	all := nodesIn(store)
	affected := map[string]*corev1.Node{} // nil: it is gone
	for _, n := range []*corev1.Node{was, now} {
		if n == nil {
			continue
		}
		affected[n.Name] = now
		for _, other := range all {
			if kube.Overlap(n, other) {
				affected[other.Name] = other
			}
		}
	}
	leases := map[string]lease.Lease{}
	for name, n := range affected { // first what goes: another node may have the same subnet now
		var l lease.Lease
		var ok bool
		if n != nil {
			l, ok = w.leaseOf(n, all)
		}
		old, had := w.known[name]
		lost := n == nil || len(kube.SubnetsOf(n, all, w.cidrs)) == 0
		newKey := old.Attrs.BackendType == wireguard && !sameLease(old, l) // the peer with the former key goes
		if had && (lost || ok && (newKey || !old.Subnet.Equal(l.Subnet) || !old.IPv6Subnet.Equal(l.IPv6Subnet))) {
			delete(w.known, name)
			w.send(lease.EventRemoved, old)
		}
		if ok {
			leases[name] = l
		}
	}
	for name, l := range leases {
		if old, had := w.known[name]; !had || !sameLease(old, l) {
			w.known[name] = l
			w.send(lease.EventAdded, l)
		}
	}
}

// others returns the subnets of all nodes but this one.
func (m *manager) others(nodes []*corev1.Node) (subnets []netip.Prefix) {
	for _, node := range nodes {
		if node.Name != m.node.Name {
			subnets = append(subnets, kube.SubnetsOf(node, nodes, m.cidrs)...)
		}
	}
	return subnets
}

func nodesIn(store cache.Store) (all []*corev1.Node) {
	for _, obj := range store.List() {
		if node, ok := obj.(*corev1.Node); ok {
			all = append(all, node)
		}
	}
	return all
}

// trimNode keeps only what leaseOf and addressesOf read: there may be thousands of nodes.
func trimNode(full, small *corev1.Node) {
	small.Status.Addresses = full.Status.Addresses
	small.Spec.PodCIDRs = full.Spec.PodCIDRs
	small.Annotations = map[string]string{}
	for _, key := range []string{managedKey, backendTypeKey, backendDataKey, backendV6DataKey, publicIPKey, publicIPv6Key} {
		if value, ok := full.Annotations[key]; ok {
			small.Annotations[key] = value
		}
	}
}
