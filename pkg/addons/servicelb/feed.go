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

// feed watches Services of type LoadBalancer, and other objects only while there are such Services.
type feed struct {
	client  kubernetes.Interface
	changed chan struct{} // receives a value after each relevant change

	services      *watching
	nodes, slices *watching // nil while there is no need for them

	mu   sync.Mutex
	gone map[types.NamespacedName]bool // Services that were deleted or changed their type
}

// watching is the watch of one kind of objects.
type watching struct {
	store  cache.Store
	synced cache.DoneChecker
	stop   context.CancelFunc
}

func newFeed(client kubernetes.Interface) *feed {
	return &feed{client: client, changed: make(chan struct{}, 1), gone: map[types.NamespacedName]bool{}}
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

// need starts or stops the watches that a plan for some Services needs, and waits until they are in sync.
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
	f.nodes, f.slices = f.nodes.stopIf(len(services) == 0), f.slices.stopIf(!local)
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

// same reports whether two versions of a trimmed object differ only in their resource version.
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

// noteGone records a Service that has left the watch. It may still exist, with another type.
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

// takeGone returns the recorded Services and clears the record.
func (f *feed) takeGone() map[types.NamespacedName]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := maps.Clone(f.gone)
	clear(f.gone)
	return out
}

// listOf returns the objects of a watch.
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
