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
)

const (
	// heartbeat is the rhythm of measuring while nobody asks. CPU usage is a difference, so it is also the longest time
	// that the first answer after a while is an average over.
	heartbeat = time.Minute
	// young is the age under which a measurement is good enough for who asks. Kubelets measure nodes every 10 to 15
	// seconds, and containers when they are asked.
	young = 5 * time.Second
	// patience is how long who asks waits for a measurement that has just begun. One takes some milliseconds, but for
	// nodes that do not answer.
	patience = time.Second
	// again is the rhythm while a new node has no figures: until the kubelet has measured twice. trials is for how long.
	again  = 3 * time.Second
	trials = time.Minute
)

// usage is what nodes and pods use, measured when somebody asks, and now and then when nobody does.
type usage struct {
	storage.Storage
	scraper scraper.Scraper
	nodes   corelisters.NodeLister
	wake    chan struct{} // has a value when a node is new
	report  func()        // called after each round
	births  births

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

// fresh sees to it that there is a young measurement, if that does not take long.
func (u *usage) fresh() {
	r := u.measure(young)
	left := time.NewTimer(time.Until(r.began.Add(patience)))
	defer left.Stop()
	select {
	case <-r.done:
	case <-left.C:
	}
}

// measure begins a round unless one runs or the last one is younger than age, and returns it, or the last one.
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

// store keeps a measurement. Rounds do not overlap.
func (u *usage) store(batch *storage.MetricsBatch) {
	if born := u.births.before(batch); born != nil {
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

// run keeps the rhythm until ctx is done.
func (u *usage) run(ctx context.Context) {
	u.follow(ctx)
	defer u.end()
	since := map[string]time.Time{}
	for {
		<-u.measure(again).done // many nodes that are new at once make for few rounds
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

// follow lets rounds begin, until end, which waits for the last one.
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

// pause is how long to wait for the next round. since says from when on a node has been without figures.
func (u *usage) pause(since map[string]time.Time) time.Duration {
	nodes, err := u.nodes.List(labels.Everything())
	if err != nil { // a cache does not fail
		return heartbeat
	}
	pause := heartbeat
	for _, node := range nodes {
		if found, err := u.Storage.GetNodeMetrics(node); err == nil && len(found) > 0 || readiness(node) != corev1.ConditionTrue {
			delete(since, node.Name)
			continue
		}
		if since[node.Name].IsZero() {
			since[node.Name] = time.Now()
		}
		if time.Since(since[node.Name]) < trials {
			pause = again
		}
	}
	for name := range since {
		if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == name }) {
			delete(since, name)
		}
	}
	return pause
}

// newNodes wakes run when a node becomes Ready.
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
			if before != nil && after != nil && readiness(before) != corev1.ConditionTrue && readiness(after) == corev1.ConditionTrue {
				wake()
			}
		},
	}
}

// readiness is what a node's condition Ready says.
func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionFalse
}
