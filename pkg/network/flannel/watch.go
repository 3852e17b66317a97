package flannel

import (
	"context"
	"net/netip"

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
	known := map[string]lease.Lease{} // by node; used by the informer's goroutine only
	send := func(kind lease.EventType, l lease.Lease) {
		result := lease.LeaseWatchResult{Events: []lease.Event{{Type: kind, Lease: l}}}
		select {
		case receiver <- []lease.LeaseWatchResult{result}:
		case <-ctx.Done():
		}
	}
	update := func(obj any) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return
		}
		l, ok := m.leaseOf(node)
		old, had := known[node.Name]
		if !ok || had && sameLease(old, l) {
			return
		}
		if had && (!old.Subnet.Equal(l.Subnet) || !old.IPv6Subnet.Equal(l.IPv6Subnet)) {
			send(lease.EventRemoved, old)
		}
		known[node.Name] = l
		send(lease.EventAdded, l)
	}
	remove := func(obj any) {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		if old, had := known[key]; err == nil && had {
			delete(known, key)
			send(lease.EventRemoved, old)
		}
	}
	var guard func()
	nodes, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(m.all.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Transform:     kube.Trim(trimNode),
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				update(obj)
				guard()
			},
			UpdateFunc: func(old, obj any) {
				update(obj)
				if !sameSender(old, obj) {
					guard()
				}
			},
			DeleteFunc: func(obj any) {
				remove(obj)
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
		if err := removeStaleRoutes(m.cidrs, m.others(nodes)); err != nil {
			logrus.WithField("component", "flannel").Warn(err)
		}
	}()
	controller.RunWithContext(ctx)
	return nil
}

// others returns the subnets of all nodes but this one.
func (m *manager) others(nodes cache.Store) (subnets []netip.Prefix) {
	for _, node := range nodesIn(nodes) {
		if node.Name == m.node.Name {
			continue
		}
		if s, err := parseSubnets(node.Spec.PodCIDRs); err == nil {
			subnets = append(subnets, s...)
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
