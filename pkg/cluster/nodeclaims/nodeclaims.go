// Package nodeclaims maintains what machines join with. On every server TokenPublisher creates the tokens with which the server
// was started, and claims its node name. On one server Claims releases the names of Nodes that are gone. Package endpoint
// answers machines that join.
package nodeclaims

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
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
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
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
		Transform:     kube.Trim(func(_, _ *corev1.Node) {}), // names and times are enough
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
			again, err := claims.DropStale(ctx, node.name, node.created)
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

// TokenPublisher publishes a server's tokens and then opens it to machines that join.
type TokenPublisher struct {
	// Kubeconfig is an administrator's: creating tokens means having all rights.
	Kubeconfig string
	// Node is the server's own name as a node, IPs are its addresses and Key is the fingerprint of its key.
	Node string
	IPs  []netip.Addr
	Key  string
	// Tokens returns the tokens with which the server was started.
	Tokens func() ([]endpoint.Token, error)
	// Open is called once machines can join.
	Open func()
}

// requestTimeout limits one request.
const requestTimeout = 10 * time.Second

// Run is ready once machines can join.
func (p TokenPublisher) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(p.Kubeconfig)
	if err != nil {
		return err
	}
	log := logrus.WithField("component", "join")
	tokens, err := p.Tokens()
	if err != nil {
		return err
	}
	err = lifecycle.Until(ctx, "the tokens that the server was started with", func(ctx context.Context) error {
		return endpoint.StartedWith(ctx, client, p.Node, tokens, log)
	})
	if err != nil {
		return err
	}
	var mine bool
	err = lifecycle.Until(ctx, "the claim on the node name", func(ctx context.Context) (err error) {
		mine, err = endpoint.Claims{Client: client, Log: log}.Adopt(ctx, p.Node, p.Key, p.mine)
		return err
	})
	if err != nil {
		return err
	}
	if !mine { // not an error: it would end the control plane
		log.Errorf("node name %s is another machine's: give this server another with --node-name", p.Node)
	}
	p.Open()
	ready()
	<-ctx.Done()
	return nil
}

// mine reports whether a Node whose name has no claim, or one with another key, is this server: after a restore on new hardware,
// or if the first server's Node was created before its claim. With a claim the addresses are not sufficient, because kubelets
// report those themselves; the label, which no kubelet can set, must be there too.
func (p TokenPublisher) mine(node *corev1.Node, claimed bool) bool {
	return (!claimed || kube.IsServer(node)) && slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return slices.ContainsFunc(p.IPs, func(ip netip.Addr) bool { return a.Address == ip.String() })
	})
}
