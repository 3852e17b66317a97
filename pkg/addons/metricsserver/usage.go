package metricsserver

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/metrics/pkg/apis/metrics"
	"sigs.k8s.io/metrics-server/pkg/scraper"
	"sigs.k8s.io/metrics-server/pkg/storage"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const (
	// idleInterval is the interval of measurements while there are no requests. CPU usage is a difference between measurements,
	// so the first answer after an idle time is an average over this interval at most.
	idleInterval = time.Minute
	// freshAge is the age up to which a measurement is used for an answer. Kubelets measure nodes every 10 to 15 seconds, and
	// containers on request.
	freshAge = 5 * time.Second
	// answerTimeout is how long a request waits for a measurement, which takes some milliseconds unless nodes do not answer.
	answerTimeout = time.Second
	// newNodeInterval is the interval while a new node has no figures, until its kubelet has measured twice. newNodePeriod
	// limits how long that interval applies.
	newNodeInterval = 3 * time.Second
	newNodePeriod   = time.Minute
)

// usage stores the usage of nodes and pods. It measures on request, and at long intervals without requests.
type usage struct {
	storage.Storage
	scraper           scraper.Scraper
	nodes             corelisters.NodeLister
	wake              chan struct{} // receives a value when a node becomes Ready
	report            func()        // called after each round
	firstMeasurements firstMeasurements

	mu   sync.Mutex
	ctx  context.Context // of run; nil before and after
	last round
}

// round is one measurement of all nodes.
type round struct {
	began time.Time
	done  chan struct{} // closed when it is stored; nil if there was none
}

// GetNodeMetrics implements api.MetricsGetter.
func (u *usage) GetNodeMetrics(nodes ...*corev1.Node) ([]metrics.NodeMetrics, error) {
	u.fresh()
	return u.Storage.GetNodeMetrics(nodes...)
}

// GetPodMetrics implements api.MetricsGetter.
func (u *usage) GetPodMetrics(pods ...*metav1.PartialObjectMetadata) ([]metrics.PodMetrics, error) {
	u.fresh()
	return u.Storage.GetPodMetrics(pods...)
}

// fresh waits for a fresh measurement, at most answerTimeout.
func (u *usage) fresh() {
	r := u.measure(freshAge)
	left := time.NewTimer(time.Until(r.began.Add(answerTimeout)))
	defer left.Stop()
	select {
	case <-r.done:
	case <-left.C:
	}
}

// measure starts a round unless one is running or the last one is younger than age, and returns the running or last round.
func (u *usage) measure(age time.Duration) round {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx == nil || u.last.running() || u.last.done != nil && time.Since(u.last.began) < age {
		return u.last
	}
	u.last = round{began: time.Now(), done: make(chan struct{})}
	go func(ctx context.Context, done chan struct{}) {
		defer close(done)
		u.store(u.scraper.Scrape(ctx))
		u.report()
	}(u.ctx, u.last.done)
	return u.last
}

// store stores a measurement. Rounds do not overlap.
func (u *usage) store(batch *storage.MetricsBatch) {
	if born := u.firstMeasurements.before(batch); born != nil {
		u.Store(born)
	}
	u.Store(batch)
}

func (r round) running() bool {
	select {
	case <-r.done:
		return false
	default:
		return r.done != nil
	}
}

// run measures at intervals until ctx is done.
func (u *usage) run(ctx context.Context) {
	u.follow(ctx)
	defer u.end()
	since := map[string]time.Time{}
	for {
		<-u.measure(newNodeInterval).done // several new nodes at once share a round
		timer := time.NewTimer(u.pause(since))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-u.wake:
			timer.Stop()
		}
	}
}

// follow allows rounds to start until end, which waits for the last one.
func (u *usage) follow(ctx context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ctx = ctx
}

func (u *usage) end() {
	u.mu.Lock()
	u.ctx = nil
	last := u.last
	u.mu.Unlock()
	<-last.done
}

// pause returns how long to wait for the next round. since records since when each node has had no figures.
func (u *usage) pause(since map[string]time.Time) time.Duration {
	nodes, err := u.nodes.List(labels.Everything())
	if err != nil { // listing a cache never fails
		return idleInterval
	}
	pause := idleInterval
	for _, node := range nodes {
		if found, err := u.Storage.GetNodeMetrics(node); err == nil && len(found) > 0 || kube.NodeReadiness(node) != corev1.ConditionTrue {
			delete(since, node.Name)
			continue
		}
		if since[node.Name].IsZero() {
			since[node.Name] = time.Now()
		}
		if time.Since(since[node.Name]) < newNodePeriod {
			pause = newNodeInterval
		}
	}
	for name := range since {
		if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == name }) {
			delete(since, name)
		}
	}
	return pause
}

// newNodes returns a handler that wakes run when a node becomes Ready.
func (u *usage) newNodes() cache.ResourceEventHandler {
	wake := func() {
		select {
		case u.wake <- struct{}{}:
		default:
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() },
		UpdateFunc: func(old, now any) {
			before, _ := old.(*corev1.Node)
			after, _ := now.(*corev1.Node)
			if before != nil && after != nil && kube.NodeReadiness(before) != corev1.ConditionTrue && kube.NodeReadiness(after) == corev1.ConditionTrue {
				wake()
			}
		},
	}
}
