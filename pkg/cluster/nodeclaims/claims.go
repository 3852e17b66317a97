package nodeclaims

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const component = "node-claims"

// Claims releases the node names whose Nodes are gone, so that other machines can have them. It runs on one server at a time.
type Claims struct {
	// Kubeconfig is allowed to watch Nodes and to list, get and delete Leases in kube-system.
	Kubeconfig string
}

// Run works until ctx is done. It is ready at once, because no other part needs a name to be free.
func (c Claims) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(c.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	nodes := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	run(kube.WithComponent(ctx, component), client, nodes)
	return nil
}

// gone is a Node that was deleted. created is zero if it is not known.
type gone struct {
	name    string
	created time.Time
}

func run(ctx context.Context, client kubernetes.Interface, nodes cache.ListerWatcher) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[gone](time.Second, time.Minute))
	known, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: nodes,
		ObjectType:    &corev1.Node{},
		Transform:     nameOnly,
		Handler: cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if node, ok := obj.(*corev1.Node); ok {
				queue.Add(gone{node.Name, node.CreationTimestamp.Time})
			}
		}},
	})
	claims := endpoint.Claims{Client: client, Log: logrus.WithField("component", component)}
	var working sync.WaitGroup
	working.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			return
		}
		queue.Add(gone{}) // stands for the Nodes that were deleted before the watch began
		kube.Work(ctx, component, queue, func(ctx context.Context, node gone) error {
			if node == (gone{}) {
				return enqueueOrphans(ctx, client, known, queue)
			}
			again, err := claims.Drop(ctx, node.name, node.created)
			if again > 0 {
				queue.AddAfter(node, again)
			}
			return err
		})
	})
	controller.RunWithContext(ctx)
	queue.ShutDown()
	working.Wait()
}

// enqueueOrphans enqueues the claims without a Node.
func enqueueOrphans(ctx context.Context, client kubernetes.Interface, nodes cache.Store, queue workqueue.TypedRateLimitingInterface[gone]) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	for _, l := range leases.Items {
		name := endpoint.ClaimedBy(l.Name)
		if _, exists, err := nodes.GetByKey(name); err == nil && !exists && name != "" {
			queue.Add(gone{name: name})
		}
	}
	return nil
}

// nameOnly drops the fields of a Node that are not needed here, to save memory.
func nameOnly(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		slim := &corev1.Node{}
		slim.Name, slim.ResourceVersion, slim.CreationTimestamp = node.Name, node.ResourceVersion, node.CreationTimestamp
		return slim, nil
	}
	return obj, nil
}
