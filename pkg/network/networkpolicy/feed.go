package networkpolicy

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// feed watches the API for an enforcer.
type feed struct {
	client kubernetes.Interface
	node   string
}

// handler turns the events of an informer into calls with typed objects. set gets the former object of the same name, or nil; it may
// be another object that was deleted while the watch was interrupted.
func handler[T any](set func(old, now *T), remove func(*T)) cache.ResourceEventHandler {
	gone := func(obj any) {
		if late, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = late.Obj
		}
		if t, ok := obj.(*T); ok {
			remove(t)
		}
	}
	there := func(old, obj any) {
		was, _ := old.(*T)
		if t, ok := obj.(*T); ok {
			set(was, t)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) { there(nil, obj) }, UpdateFunc: there, DeleteFunc: gone}
}

func run(ctx context.Context, working *sync.WaitGroup, options cache.InformerOptions) cache.DoneChecker {
	_, controller := cache.NewInformerWithOptions(options)
	working.Go(func() { controller.RunWithContext(ctx) })
	return controller.HasSyncedChecker()
}

// policies watches all NetworkPolicies. It is the only watch while there are none.
func (f feed) policies(ctx context.Context, e *enforcer) cache.DoneChecker {
	return run(ctx, &sync.WaitGroup{}, cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(f.client.NetworkingV1().RESTClient(), "networkpolicies", "", fields.Everything()),
		ObjectType:    &networkingv1.NetworkPolicy{},
		Transform:     kube.Trim(func(full, small *networkingv1.NetworkPolicy) { small.Spec = full.Spec }),
		Handler:       handler(func(_, p *networkingv1.NetworkPolicy) { e.setPolicy(p) }, e.removePolicy),
	})
}

// peers watches namespaces, and pods that have an address of their own and have not ended.
func (f feed) peers(ctx context.Context, e *enforcer) (synced []cache.DoneChecker, ended func()) {
	working := &sync.WaitGroup{}
	return []cache.DoneChecker{
		run(ctx, working, cache.InformerOptions{
			ListerWatcher: cache.NewListWatchFromClient(f.client.CoreV1().RESTClient(), "namespaces", "", fields.Everything()),
			ObjectType:    &corev1.Namespace{},
			Transform:     kube.Trim(func(full, small *corev1.Namespace) { small.Labels = full.Labels }),
			Handler: handler(
				func(_, n *corev1.Namespace) {
					e.change(func(g *engine) { g.setNamespace(n.Name, labels.Set(n.Labels)) })
				},
				func(n *corev1.Namespace) { e.change(func(g *engine) { g.removeNamespace(n.Name) }) }),
		}),
		run(ctx, working, cache.InformerOptions{
			ListerWatcher: cache.NewFilteredListWatchFromClient(f.client.CoreV1().RESTClient(), "pods", "", func(o *metav1.ListOptions) {
				o.FieldSelector = "spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"
			}),
			ObjectType: &corev1.Pod{},
			Transform: func(obj any) (any, error) {
				p, ok := obj.(*corev1.Pod)
				if !ok {
					return obj, nil
				}
				return newPod(p, f.node), nil
			},
			Handler: handler(e.replacePod, e.removePod),
		}),
	}, working.Wait
}
