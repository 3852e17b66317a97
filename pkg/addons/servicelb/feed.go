package servicelb

import (
	"context"
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// balanced selects Services of type LoadBalancer.
const balanced = "spec.type=LoadBalancer"

// feed is what is known of the cluster. It watches Services of type LoadBalancer, and the rest only while there are any.
type feed struct {
	client  kubernetes.Interface
	changed chan struct{} // something that matters

	services      *watching
	nodes, slices *watching // nil while nobody needs them

	mu   sync.Mutex
	gone map[types.NamespacedName]bool // Services that are not of the type any more, or deleted
}

// watching is one kind of objects that is watched.
type watching struct {
	store  cache.Store
	synced cache.DoneChecker
	stop   context.CancelFunc
}

func newFeed(client kubernetes.Interface) *feed {
	return &feed{client: client, changed: make(chan struct{}, 1), gone: map[types.NamespacedName]bool{}}
}

// notify says that something has changed.
func (f *feed) notify() {
	select {
	case f.changed <- struct{}{}:
	default: // one is waiting already
	}
}

// start begins to watch Services.
func (f *feed) start(ctx context.Context) {
	services := f.client.CoreV1().Services("")
	f.services = f.watch(ctx, &corev1.Service{}, trimService, f.noteGone, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = balanced
			return services.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = balanced
			return services.Watch(ctx, o)
		},
	})
}

// need watches what a plan for some Services needs besides them, and returns when it is known.
func (f *feed) need(ctx context.Context, services []*corev1.Service) {
	local := false
	for _, s := range services {
		local = local || isLocal(s)
	}
	if len(services) > 0 && f.nodes == nil {
		nodes := f.client.CoreV1().Nodes()
		f.nodes = f.watch(ctx, &corev1.Node{}, trimNode, nil, &cache.ListWatch{
			ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return nodes.List(ctx, o) },
			WatchFuncWithContext: nodes.Watch,
		})
	}
	if local && f.slices == nil {
		slices := f.client.DiscoveryV1().EndpointSlices("")
		f.slices = f.watch(ctx, &discoveryv1.EndpointSlice{}, trimSlice, nil, &cache.ListWatch{
			ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return slices.List(ctx, o) },
			WatchFuncWithContext: slices.Watch,
		})
	}
	f.nodes, f.slices = f.nodes.unless(len(services) == 0), f.slices.unless(!local)
	for _, w := range []*watching{f.nodes, f.slices} {
		if w != nil {
			cache.WaitFor(ctx, "", w.synced)
		}
	}
}

// unless ends the watch if over, and returns what goes on.
func (w *watching) unless(over bool) *watching {
	if w == nil || !over {
		return w
	}
	w.stop()
	return nil
}

// watch follows objects in the form that trim gives them. Changes of what trim leaves are told.
func (f *feed) watch(ctx context.Context, kind runtime.Object, trim cache.TransformFunc, gone func(any), lw *cache.ListWatch) *watching {
	ctx, stop := context.WithCancel(ctx)
	w := &watching{stop: stop}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(lw, f.client),
		ObjectType:    kind,
		Transform:     trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { f.notify() },
			UpdateFunc: func(old, obj any) {
				if !same(old, obj) {
					f.notify()
				}
			},
			DeleteFunc: func(obj any) {
				if gone != nil {
					gone(obj)
				}
				f.notify()
			},
		},
	})
	w.store, w.synced = store, controller.HasSyncedChecker()
	go controller.RunWithContext(ctx)
	return w
}

// same reports whether two versions of a trimmed object differ in nothing but their version.
func same(old, obj any) bool {
	switch a := old.(type) {
	case *corev1.Service:
		b, ok := obj.(*corev1.Service)
		return ok && versionless(a.ObjectMeta, b.ObjectMeta) && reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status, b.Status)
	case *corev1.Node:
		b, ok := obj.(*corev1.Node)
		return ok && versionless(a.ObjectMeta, b.ObjectMeta) && reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Status, b.Status)
	case *discoveryv1.EndpointSlice:
		b, ok := obj.(*discoveryv1.EndpointSlice)
		return ok && versionless(a.ObjectMeta, b.ObjectMeta) && reflect.DeepEqual(a.Endpoints, b.Endpoints)
	}
	return false
}

func versionless(a, b metav1.ObjectMeta) bool {
	a.ResourceVersion, b.ResourceVersion = "", ""
	return reflect.DeepEqual(a, b)
}

// noteGone remembers a Service that has left the watch: it may be there still, with another type.
func (f *feed) noteGone(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if s, ok := obj.(*corev1.Service); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.gone[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = true
	}
}

// takeGone returns these Services and forgets them.
func (f *feed) takeGone() map[types.NamespacedName]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := maps.Clone(f.gone)
	clear(f.gone)
	return out
}

// listOf returns what is known of a kind.
func listOf[T any](w *watching) (out []T) {
	if w == nil {
		return nil
	}
	for _, obj := range w.store.List() {
		if one, ok := obj.(T); ok {
			out = append(out, one)
		}
	}
	return out
}

// endpoints are the nodes of each Service's endpoints.
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
