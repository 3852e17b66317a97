// Package memberremoval removes a member of etcd when the Node of its server is deleted, which means that the server does not come back. It
// runs on the leading server.
package memberremoval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// Removal is the component.
type Removal struct {
	Kubeconfig string // its user may list and watch Nodes
	Own        string // this server's node
	Members    Members
}

// Members is what the removal needs of etcd's client.
type Members interface {
	List(ctx context.Context) ([]join.Member, error)
	Remove(ctx context.Context, name string) error
	// Answers reports whether a member runs at one of the URLs.
	Answers(ctx context.Context, peerURLs []string) bool
}

// Timings.
const (
	// A server that comes back without its data deletes its Node and then replaces its member itself. Two changes of the
	// membership at the same time would conflict.
	grace = 4 * time.Second
	// A member has a name as soon as it has run, and its server's Node follows within seconds. If such a member has no Node and does not
	// answer this long after this server began to lead, its Node was deleted before. A server that was only slow joins again.
	registration = 30 * time.Second
	recheck      = 30 * time.Second // of a server that runs although its Node was deleted
	timeout      = 20 * time.Second // of one removal
)

// errRuns is the error for a member that must not be removed, because it answers.
var errRuns = errors.New("the server still runs")

// Run works until ctx is done. It is ready at once.
func (r Removal) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, r.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	r.run(kube.WithComponent(ctx, "etcd-members"), cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything()))
	return nil
}

func (r Removal) run(ctx context.Context, nodes cache.ListerWatcher) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute))
	gone := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			queue.AddAfter(name.Name, grace)
		}
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: nodes,
		ObjectType:    &corev1.Node{},
		Transform:     kube.Trim(func(_, _ *corev1.Node) {}), // the names are enough
		Handler:       cache.ResourceEventHandlerFuncs{DeleteFunc: gone},
	})
	var working sync.WaitGroup
	working.Go(func() {
		kube.Work(ctx, "etcd-members", queue, func(ctx context.Context, name string) error {
			err := r.handle(ctx, store, name)
			if errors.Is(err, errRuns) {
				queue.AddAfter(name, recheck)
				return nil
			}
			if err != nil {
				return fmt.Errorf("removing server %s from etcd, because its Node was deleted: %w", name, err)
			}
			return nil
		})
	})
	working.Go(func() { r.orphans(ctx, queue, controller.HasSynced, store) })
	controller.RunWithContext(ctx)
	queue.ShutDown()
	working.Wait()
}

// handle removes the member of a server whose Node is deleted. A server that runs is not removed: it would join again, or has just done so.
func (r Removal) handle(ctx context.Context, store cache.Store, name string) error {
	if _, exists, err := store.GetByKey(name); err != nil || exists || name == r.Own {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all, err := r.Members.List(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Name != name {
			continue
		}
		if r.Members.Answers(ctx, m.PeerURLs) {
			return fmt.Errorf("%w: %s", errRuns, name)
		}
		if err := r.Members.Remove(ctx, m.ID); err != nil && !errors.Is(err, members.ErrNoMember) {
			return err
		}
		logrus.WithField("component", "etcd-members").WithField("member", m.ID).Infof("removed server %s from etcd, because its Node was deleted", name)
	}
	return nil
}

// orphans looks once for members whose Node was deleted while no server watched Nodes: the leading one is often the one that is removed.
func (r Removal) orphans(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], synced func() bool, store cache.Store) {
	for lifecycle.Sleep(ctx, registration) == nil {
		members, err := r.Members.List(ctx)
		if err != nil || !synced() {
			continue // other components report that etcd does not answer
		}
		for _, m := range members {
			if _, exists, err := store.GetByKey(m.Name); err == nil && !exists && m.Name != "" {
				queue.Add(m.Name)
			}
		}
		return
	}
}
