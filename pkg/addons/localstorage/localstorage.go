// Package localstorage provisions and removes local volumes, which are directories on a node's disks, as Rancher's
// local-path-provisioner does with a pod and helper pods. Each node handles its own volumes. Until a node has its first claim
// or volume, it only holds two watches.
package localstorage

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Options configure Storage.
type Options struct {
	// Kubeconfig has the cluster role system:coracle:local-storage.
	Kubeconfig string
	// Node is the Node object of this node.
	Node *kube.OwnNode
	// Report is called with the volumes of this node after each change.
	Report func(Volumes)
}

// Storage is the component of a node.
type Storage struct {
	Options
	client     kubernetes.Interface
	claims     cache.SharedIndexInformer
	volumes    cache.SharedIndexInformer
	controller *controller.ProvisionController
	stopEvents context.CancelFunc

	dirs []string      // the directories that were searched for volumes at the start
	used chan struct{} // closed at the first claim or volume
	once sync.Once
}

// New must be called before any other goroutine uses client-go's scheme, because the library adds types to it.
func New(o Options) (*Storage, error) {
	client, err := kube.Client(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newStorage(o, client), nil
}

func newStorage(o Options, client kubernetes.Interface) *Storage {
	name := o.Node.Name
	s := &Storage{Options: o, client: client, used: make(chan struct{})}
	s.claims = cache.NewSharedIndexInformer(claimsOf(client, name), &corev1.PersistentVolumeClaim{}, 0, cache.Indexers{})
	s.volumes = coreinformers.NewFilteredPersistentVolumeInformer(client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{localpath.NodeLabel: name}.String()
	})
	begin := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { s.once.Do(func() { close(s.used) }) }}
	for _, informer := range []cache.SharedIndexInformer{s.claims, s.volumes} {
		_ = informer.SetTransform(kube.DropManagedFields) // it fails only after the informer is started
		_, _ = informer.AddEventHandler(begin)
	}
	limiter := func() workqueue.TypedRateLimiter[string] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute)
	}
	ctx, stop := context.WithCancel(kube.WithComponent(context.Background(), component))
	s.stopEvents = stop
	p := &provisioner{client: client, node: o.Node, volumes: s.volumes.GetStore()}
	s.controller = controller.NewProvisionController(ctx, lenient{client, p.drop}, localpath.Provisioner, p,
		controller.LeaderElection(false), // each node handles its own volumes
		controller.ClaimsInformer(s.claims), controller.VolumesInformer(s.volumes),
		controller.ResyncPeriod(0), controller.Threadiness(2),
		controller.AddFinalizer(true), // so that kubectl delete pv leaves no directory
		controller.FailedProvisionThreshold(0), controller.FailedDeleteThreshold(0),
		controller.RateLimiter(limiter()), controller.CreateProvisionedPVLimiter(limiter()),
	)
	return s
}

const component = "local-storage"

// Run works until ctx is done. It is ready when its watches are in sync.
func (s *Storage) Run(ctx context.Context, ready func()) error {
	defer s.stopEvents()
	ctx = kube.WithComponent(ctx, component)
	if err := kube.Await(ctx, s.mayWatch); err != nil {
		return err
	}
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { s.claims.RunWithContext(ctx) })
	working.Go(func() { s.volumes.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), s.claims.HasSynced, s.volumes.HasSynced) {
		return nil
	}
	ready()
	s.lookAround(ctx)
	go s.finishDeletes(ctx) // Run does not wait for it: the next start continues it
	select {
	case <-s.used:
	case <-ctx.Done():
		return nil
	}
	expander := newExpander(s)
	working.Go(func() { expander.run(ctx) })
	working.Go(func() { s.follow(ctx) })
	s.controller.Run(&quiet{Context: ctx})
	return nil
}

// mayWatch returns an error until the roles exist that allow nodes to list volumes and claims.
func (s *Storage) mayWatch(ctx context.Context) error {
	if _, err := s.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return err
	}
	_, err := s.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// follow reports the volumes now and after each change. It combines changes, because a look at all directories takes a while.
func (s *Storage) follow(ctx context.Context) {
	if s.Report == nil {
		return
	}
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default: // a change is noted already
		}
	}
	_, err := s.volumes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { note() }, UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() },
	})
	if err != nil {
		logrus.WithField("component", component).WithError(err).Warn("reporting volumes")
	}
	for {
		var began time.Time
		select {
		case <-changed:
			began = time.Now()
			s.Report(s.summary(ctx))
		case <-ctx.Done():
			return
		}
		if lifecycle.Sleep(ctx, restAfter(time.Since(began))) != nil {
			return
		}
	}
}

// restAfter is the pause after a report that took a given time. Reports take at most a twentieth of the time, also where they
// are slow because a directory has many other files.
func restAfter(took time.Duration) time.Duration { return max(time.Second, 20*took) }

// claimsOf lists and watches the claims whose volumes this node provisions or has provisioned. There is no field or label
// selector for them, so it receives all claims and filters them.
func claimsOf(client kubernetes.Interface, node string) cache.ListerWatcher {
	claims := client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll)
	mine := func(obj runtime.Object) bool {
		claim, ok := obj.(*corev1.PersistentVolumeClaim)
		return ok && concerns(claim, node)
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := claims.List(ctx, o)
			if err != nil {
				return nil, err
			}
			kept := list.Items[:0]
			for i := range list.Items {
				if mine(&list.Items[i]) {
					kept = append(kept, list.Items[i])
				}
			}
			list.Items = kept
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := claims.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return filter(w, mine), nil
		},
	}, client)
}

// concerns reports whether a node has or may have something to do with a claim.
func concerns(claim *corev1.PersistentVolumeClaim, node string) bool {
	return isMine(claim, node) || isUnassigned(claim) || isBoundUnassigned(claim)
}

func isMine(claim *corev1.PersistentVolumeClaim, node string) bool {
	return claim.Annotations[localpath.SelectedNode] == node && claim.Annotations[localpath.ProvisionerOf] == localpath.Provisioner
}

// isUnassigned reports whether a claim waits for a volume of a class that binds immediately, without the scheduler.
func isUnassigned(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[localpath.SelectedNode] == "" && claim.Annotations[localpath.ProvisionerOf] == localpath.Provisioner && claim.Spec.VolumeName == ""
}

// isBoundUnassigned reports whether a claim was bound without the scheduler, perhaps to a volume of this node: the volume says of which node it is.
func isBoundUnassigned(claim *corev1.PersistentVolumeClaim) bool {
	provisioner, set := claim.Annotations[localpath.ProvisionerOf]
	return claim.Annotations[localpath.SelectedNode] == "" && claim.Spec.VolumeName != "" && (!set || provisioner == localpath.Provisioner)
}
