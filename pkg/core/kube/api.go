package kube

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// APIGate opens when the API server lets this node read its own Node object. Components of the node process that would send
// requests earlier, and then back off for seconds, wait for it.
type APIGate struct {
	Kubeconfig, Name string
	// Admit is called when the API server has answered. It returns an error if another machine has become this node, and Run
	// returns that error. Nil admits every machine.
	Admit func(ctx context.Context) error

	open chan struct{}
	once sync.Once
}

// NewAPIGate returns the closed gate of the named node, whose kubeconfig it uses.
func NewAPIGate(kubeconfig, name string) *APIGate {
	return &APIGate{Kubeconfig: kubeconfig, Name: name, open: make(chan struct{})}
}

// Opened is closed when the gate opens, for good.
func (g *APIGate) Opened() <-chan struct{} { return g.open }

// Run sends requests until the gate opens. It is ready then.
func (g *APIGate) Run(ctx context.Context, ready func()) error {
	if err := AwaitAPI(ctx, g.Kubeconfig, g.Name); err != nil {
		return err
	}
	if g.Admit != nil {
		if err := g.Admit(ctx); err != nil {
			return err
		}
	}
	g.once.Do(func() { close(g.open) })
	ready()
	<-ctx.Done()
	return nil
}

// The pause between two requests: short at first, because most starts are short.
const (
	eagerPause  = 25 * time.Millisecond
	eagerFor    = 10 * time.Second
	patientWait = time.Second
)

// AwaitAPI waits until the API server lets the kubeconfig's user read the named Node, or ctx is done. The Node need not
// exist.
func AwaitAPI(ctx context.Context, kubeconfig, node string) error {
	client, err := Client(kubeconfig)
	if err != nil {
		return err
	}
	return Await(ctx, func(ctx context.Context) error {
		_, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// Await calls ask until it succeeds or ctx is done: at a first start the API server answers before the RBAC objects exist.
func Await(ctx context.Context, ask func(context.Context) error) error {
	probe := func(ctx context.Context) error { return firstLine(ask(ctx)) }
	return lifecycle.UntilPaced(ctx, "the API server", probe, func(since time.Duration) time.Duration {
		if since > eagerFor {
			return patientWait
		}
		return eagerPause
	})
}

// firstLine shortens API errors, which repeat the request.
func firstLine(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return errors.New(status.Status().Message)
	}
	return err
}

// lastingConflict is the number of conflicts in a row that are normal for an item.
const lastingConflict = 3

// Work handles the items of a queue, one after the other, until the queue is shut down. An item whose handling fails is logged
// for the component and queued again with back-off, unless ctx is done. A write that comes too late is logged only if that lasts: the cache
// does not have the latest version yet.
func Work[T comparable](ctx context.Context, component string, queue workqueue.TypedRateLimitingInterface[T], handle func(context.Context, T) error) {
	for item, down := queue.Get(); !down; item, down = queue.Get() {
		if err := handle(ctx, item); err != nil && ctx.Err() == nil {
			level := logrus.WarnLevel
			if apierrors.IsConflict(err) && queue.NumRequeues(item) < lastingConflict {
				level = logrus.DebugLevel
			}
			logrus.WithField("component", component).WithError(err).Log(level, "trying again")
			queue.AddRateLimited(item)
		} else {
			queue.Forget(item)
		}
		queue.Done(item)
	}
}

// APICaches are caches and connections of the API server that an API group served by the same process may use.
type APICaches struct {
	Nodes coreinformers.NodeInformer
	Pods  corelisters.PodLister
	// Dial connects to nodes, also to those that only their tunnels lead to; nil means to dial directly.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}
