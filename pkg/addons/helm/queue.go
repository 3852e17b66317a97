package helm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Pauses after something failed.
const (
	firstPause = 10 * time.Second
	lastPause  = 10 * time.Minute
)

// errChanged cancels the processing of a chart that changed; it is queued again.
var errChanged = errors.New("the chart was changed meanwhile")

// controller watches charts and reconciles those that change.
type controller struct {
	HelmCharts
	clients    *clients
	limits     renderLimits
	memorySlot chan struct{} // see access.memorySlot
	key        []byte        // of hashes
	log        logrus.FieldLogger
	queue      workqueue.TypedRateLimitingInterface[cache.ObjectName]
	tenants    chan struct{} // has an element for each chart that a worker processes for a tenant
	synced     []cache.InformerSynced

	charts, configs cache.Store
	refs            *references

	mu       sync.Mutex
	running  map[cache.ObjectName]context.CancelCauseFunc
	problems map[cache.ObjectName]string // for Report
}

func newController(h HelmCharts, own *clients, log logrus.FieldLogger) *controller {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](firstPause, lastPause)
	c := &controller{
		HelmCharts: h, clients: own, log: log,
		limits: defaultLimits, memorySlot: make(chan struct{}, 1),
		queue:    workqueue.NewTypedRateLimitingQueue(limiter),
		tenants:  make(chan struct{}, workers/2),
		running:  map[cache.ObjectName]context.CancelCauseFunc{},
		problems: map[cache.ObjectName]string{},
	}
	c.refs = &references{clients: own, charts: cmp.Or(h.Copy, h.Charts), changed: c.changed}
	return c
}

// watchKinds starts the informers of the two kinds.
func (c *controller) watchKinds(ctx context.Context) {
	start := func(api schema.GroupVersionResource) cache.Store {
		informer := dynamicinformer.NewFilteredDynamicInformer(c.clients.dynamic, api, metav1.NamespaceAll, 0, nil, nil).Informer()
		_ = informer.SetTransform(kube.DropManagedFields) // it fails only after the informer is started
		_, _ = informer.AddEventHandler(c.handler())
		c.synced = append(c.synced, informer.HasSynced)
		go informer.RunWithContext(ctx)
		return informer.GetStore()
	}
	c.charts, c.configs = start(chartsAPI), start(chartConfig)
}

// handler queues charts that change. A HelmChartConfig has the name of its HelmChart.
func (c *controller) handler() cache.ResourceEventHandlerFuncs {
	enqueue := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			c.changed(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(old, obj any) {
			if a, b := old.(*unstructured.Unstructured), obj.(*unstructured.Unstructured); relevant(a, b) {
				enqueue(obj)
			}
		},
		DeleteFunc: enqueue,
	}
}

// relevant reports whether people changed an object. The controller itself changes only the status and the finalizer.
func relevant(a, b *unstructured.Unstructured) bool {
	if a.GetGeneration() != b.GetGeneration() || (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) {
		return true
	}
	for _, key := range []string{unmanagedAnnotation, managedByAnnotation, retryAnnotation} {
		x, hasX := a.GetAnnotations()[key]
		y, hasY := b.GetAnnotations()[key]
		if x != y || hasX != hasY {
			return true
		}
	}
	return false
}

// changed queues a chart without delay, and cancels an action that is under way for its former state.
func (c *controller) changed(name cache.ObjectName) {
	c.mu.Lock()
	if cancel := c.running[name]; cancel != nil {
		cancel(errChanged)
	}
	c.mu.Unlock()
	c.queue.Forget(name)
	c.queue.Add(name)
}

// work reconciles charts from the queue until the queue is shut down.
func (c *controller) work(ctx context.Context) {
	for name, down := c.queue.Get(); !down; name, down = c.queue.Get() {
		leave, ok := c.enter(name)
		if !ok {
			c.queue.AddAfter(name, time.Second)
			c.queue.Done(name)
			continue
		}
		err := c.reconcile(ctx, name)
		leave()
		switch {
		case ctx.Err() != nil: // the next leader continues
		case errors.Is(err, errChanged): // it is in the queue already
		case err != nil:
			c.queue.AddRateLimited(name)
		default:
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// enter reports whether a chart may have a worker, until leave is called. Those of tenants get half of them: a chart has its worker for as long as the
// hooks of its author take.
func (c *controller) enter(name cache.ObjectName) (leave func(), ok bool) {
	if len(c.Namespaces) == 0 || slices.Contains(c.Namespaces, name.Namespace) {
		return func() {}, true
	}
	select {
	case c.tenants <- struct{}{}:
		return func() { <-c.tenants }, true
	default:
		return nil, false
	}
}

// begin returns a context for the processing of a chart, which is cancelled when the chart changes.
func (c *controller) begin(ctx context.Context, name cache.ObjectName) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[name] = cancel
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, name)
		cancel(nil)
	}
}

// chart reads a HelmChart from the API, because the cache may lack the controller's own writes, and its HelmChartConfig from
// the cache. The chart is nil if there is none. If it can be decoded only partly, that part is returned with an error.
func (c *controller) chart(ctx context.Context, name cache.ObjectName) (*chart, overrides, error) {
	var config struct {
		Spec overrides `json:"spec"`
	}
	if _, ok, err := c.charts.GetByKey(name.String()); err != nil || !ok {
		return nil, config.Spec, err
	}
	obj, err := c.clients.dynamic.Resource(chartsAPI).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, config.Spec, nil
	}
	if err != nil {
		return nil, config.Spec, fmt.Errorf("reading HelmChart %s: %w", name, err)
	}
	ch := &chart{}
	if err := decode(obj, ch); err != nil {
		return partial(obj), config.Spec, problem{reasonInvalid, err}
	}
	ch.stored = ch.Status
	stored, ok, err := c.configs.GetByKey(name.String())
	if err == nil && ok {
		err = decode(stored, &config)
	}
	if err != nil {
		return ch, config.Spec, problem{reasonInvalid, err}
	}
	return ch, config.Spec, nil
}
