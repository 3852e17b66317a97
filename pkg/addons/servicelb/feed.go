package servicelb

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// balanced selects Services of type LoadBalancer.
const balanced = "spec.type=LoadBalancer"

// feed watches Services of type LoadBalancer, and other objects only while there are such Services.
type feed struct {
	client  kubernetes.Interface
	changed chan struct{} // receives a value after each relevant change

	services      *watching
	nodes, slices *watching // nil while there is no need for them
	// left reports that Services were deleted or changed their type, at the start also before it.
	left atomic.Bool
}

// watching is the watch of one kind of objects.
type watching struct {
	store  cache.Store
	synced cache.DoneChecker
	stop   context.CancelFunc
}

func newFeed(client kubernetes.Interface) *feed {
	f := &feed{client: client, changed: make(chan struct{}, 1)}
	f.left.Store(true)
	return f
}

// notify announces a change.
func (f *feed) notify() {
	select {
	case f.changed <- struct{}{}:
	default: // a change is announced already
	}
}

// start starts the watch of Services.
func (f *feed) start(ctx context.Context) {
	ofType := func(o *metav1.ListOptions) { o.FieldSelector = balanced }
	f.services = f.watch(ctx, coreinformers.NewFilteredServiceInformer(f.client, "", 0, nil, ofType), kube.Trim(trimService))
}

// need starts or stops the watches that a plan for some Services, and for Gateways if there are any, needs, and waits until they are in sync.
func (f *feed) need(ctx context.Context, services []*corev1.Service, gateways bool) {
	local := false
	for _, s := range services {
		local = local || isLocal(s)
	}
	none := len(services) == 0 && !gateways
	if !none && f.nodes == nil {
		f.nodes = f.watch(ctx, coreinformers.NewNodeInformer(f.client, 0, nil), kube.Trim(trimNode))
	}
	if local && f.slices == nil {
		f.slices = f.watch(ctx, discoveryinformers.NewEndpointSliceInformer(f.client, "", 0, nil), kube.Trim(trimSlice))
	}
	f.nodes, f.slices = f.nodes.stopIf(none), f.slices.stopIf(!local)
	for _, w := range []*watching{f.nodes, f.slices} {
		if w != nil {
			cache.WaitFor(ctx, "", w.synced)
		}
	}
}

// stopIf stops the watch if over is true, and returns the watch that goes on.
func (w *watching) stopIf(over bool) *watching {
	if w == nil || !over {
		return w
	}
	w.stop()
	return nil
}

// watch watches objects in the form that trim returns, and announces changes of that form.
func (f *feed) watch(ctx context.Context, informer cache.SharedIndexInformer, trim cache.TransformFunc) *watching {
	ctx, stop := context.WithCancel(ctx)
	_ = informer.SetTransform(trim) // it fails only after the informer is started
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f.notify() },
		UpdateFunc: func(old, obj any) {
			if !kube.SameContent(old, obj) {
				f.notify()
			}
		},
		DeleteFunc: func(obj any) {
			switch obj.(type) {
			case *corev1.Service, cache.DeletedFinalStateUnknown:
				f.left.Store(true)
			}
			f.notify()
		},
	})
	go informer.RunWithContext(ctx)
	return &watching{store: informer.GetStore(), synced: informer.HasSyncedChecker(), stop: stop}
}

// listOf returns the objects of a watch, none if it is nil.
func listOf[T any](w *watching) []T {
	if w == nil {
		return nil
	}
	return kube.ListOf[T](w.store)
}

// endpoints returns the nodes with endpoints of each Service.
func (f *feed) endpoints() map[types.NamespacedName]places {
	out := map[types.NamespacedName]places{}
	for _, slice := range listOf[*discoveryv1.EndpointSlice](f.slices) {
		key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		p, ok := out[key]
		if !ok {
			p = places{ready: map[string]bool{}, terminating: map[string]bool{}}
			out[key] = p
		}
		for _, e := range slice.Endpoints {
			is := func(b *bool, unknown bool) bool { return b == nil && unknown || b != nil && *b }
			switch {
			case e.NodeName == nil:
			case is(e.Conditions.Ready, true):
				p.ready[*e.NodeName] = true
			case is(e.Conditions.Serving, false) && is(e.Conditions.Terminating, false):
				p.terminating[*e.NodeName] = true
			}
		}
	}
	return out
}
