package joining

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

	"github.com/coracle-dev/coracle/pkg/joinserver"
	"github.com/coracle-dev/coracle/pkg/kube"
)

// Claims deletes the claims on the names of nodes that are gone, so that another machine can have them. One server at
// a time does it.
type Claims struct {
	// Kubeconfig may watch nodes, and list, get and delete Leases of kube-system.
	Kubeconfig string
}

// Run works until ctx is done. It is ready at once: nobody waits for a name to be free.
func (c Claims) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(c.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	nodes := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	run(kube.WithComponent(ctx, "node-claims"), client, nodes)
	return nil
}

func run(ctx context.Context, client kubernetes.Interface, nodes cache.ListerWatcher) {
	log := logrus.WithField("component", "node-claims")
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute))
	known, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: nodes,
		ObjectType:    &corev1.Node{},
		Transform:     nameOnly,
		Handler: cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				queue.Add(key)
			}
		}},
	})
	claims := joinserver.Claims{Client: client, Log: log}
	var working sync.WaitGroup
	working.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
			return
		}
		queue.Add("") // stands for all that was not watched
		for name, down := queue.Get(); !down; name, down = queue.Get() {
			var again time.Duration
			var err error
			if name == "" {
				err = enqueueOrphans(ctx, client, known, queue)
			} else {
				again, err = claims.Drop(ctx, name)
			}
			switch {
			case err != nil && ctx.Err() == nil:
				log.WithError(err).Warn("trying again")
				queue.AddRateLimited(name)
			case again > 0:
				queue.AddAfter(name, again)
			default:
				queue.Forget(name)
			}
			queue.Done(name)
		}
	})
	controller.RunWithContext(ctx)
	queue.ShutDown()
	working.Wait()
}

// enqueueOrphans looks for claims without a Node.
func enqueueOrphans(ctx context.Context, client kubernetes.Interface, nodes cache.Store, queue workqueue.TypedRateLimitingInterface[string]) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	leases, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing claims: %w", err)
	}
	for _, l := range leases.Items {
		name := joinserver.ClaimedBy(l.Name)
		if _, exists, err := nodes.GetByKey(name); err == nil && !exists && name != "" {
			queue.Add(name)
		}
	}
	return nil
}

// nameOnly keeps what is asked of a Node: there may be thousands.
func nameOnly(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		slim := &corev1.Node{}
		slim.Name, slim.ResourceVersion = node.Name, node.ResourceVersion
		return slim, nil
	}
	return obj, nil
}
