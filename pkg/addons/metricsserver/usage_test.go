package metricsserver

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

// kubelets answers for every node with a figure that is as old as kubelets' are: it changes every ten seconds.
type kubelets struct {
	rounds atomic.Int32
	takes  time.Duration
	silent bool // no kubelet answers
}

// Scrape implements scraper.Scraper.
func (k *kubelets) Scrape(ctx context.Context) *storage.MetricsBatch {
	k.rounds.Add(1)
	select {
	case <-ctx.Done():
	case <-time.After(k.takes):
	}
	batch := &storage.MetricsBatch{}
	if !k.silent {
		at := time.Now().Truncate(10 * time.Second)
		batch.Nodes = map[string]storage.MetricsPoint{"a": {Timestamp: at, CumulativeCPUUsed: uint64(at.Unix()) * 1e9, MemoryUsage: 1 << 20}}
	}
	return batch
}

func node(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

func listed(t *testing.T, nodes ...*corev1.Node) corelisters.NodeLister {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, n := range nodes {
		if err := index.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	return corelisters.NewNodeLister(index)
}

// start runs usage until the test ends.
func start(t *testing.T, k *kubelets, nodes ...*corev1.Node) *usage {
	t.Helper()
	u := &usage{Storage: storage.NewStorage(0), scraper: k, nodes: listed(t, nodes...), wake: make(chan struct{}, 1), report: func() {}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
	return u
}

// rounds fails the test unless as many rounds were made since the last call.
func (k *kubelets) expect(t *testing.T, when string, least, most int32) {
	t.Helper()
	synctest.Wait()
	if n := k.rounds.Swap(0); n < least || n > most {
		t.Errorf("%s: %d rounds, not %d to %d", when, n, least, most)
	}
}

func TestRhythm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kubelets{}
		a := node("a", corev1.ConditionTrue)
		u := start(t, k, a)
		k.expect(t, "at the start", 1, 1)
		time.Sleep(13 * time.Second)
		k.expect(t, "until the node has figures", 4, 4)
		found, err := u.Storage.GetNodeMetrics(a)
		if err != nil || len(found) != 1 || found[0].Usage.Cpu().MilliValue() != 1000 {
			t.Fatalf("the figures are %v, %v", found, err)
		}
		time.Sleep(10 * time.Minute)
		k.expect(t, "in ten minutes in which nobody asks", 10, 10)

		for range 4 { // somebody who asks gets a young figure, and does not make for rounds without end
			if _, err := u.GetNodeMetrics(a); err != nil {
				t.Fatal(err)
			}
			if _, err := u.GetPodMetrics(); err != nil {
				t.Fatal(err)
			}
		}
		k.expect(t, "while somebody asks often", 0, 1)
		time.Sleep(freshAge)
		if _, err := u.GetNodeMetrics(a); err != nil {
			t.Fatal(err)
		}
		k.expect(t, "when somebody asks again", 1, 2)
		for range 100 {
			u.wake <- struct{}{}
		}
		k.expect(t, "when many nodes are new", 0, 1)
		time.Sleep(newNodeInterval)
		u.wake <- struct{}{}
		k.expect(t, "when another is new", 1, 1)
	})
}

func TestNodeWithoutFigures(t *testing.T) {
	for name, c := range map[string]struct {
		ready       corev1.ConditionStatus
		least, most int32 // rounds in five minutes
	}{
		"Ready":     {corev1.ConditionTrue, 4 + 60/3 - 1, 4 + 60/3 + 1},
		"not Ready": {corev1.ConditionFalse, 5, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &kubelets{silent: true}
				start(t, k, node("a", c.ready))
				time.Sleep(5*time.Minute + time.Second)
				k.expect(t, "in five minutes", c.least, c.most)
			})
		})
	}
}

func TestWhoAsksDoesNotWaitForKubelets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kubelets{takes: scrapeTimeout}
		a := node("a", corev1.ConditionTrue)
		u := start(t, k, a)
		time.Sleep(time.Minute)
		for range 30 {
			began := time.Now()
			if _, err := u.GetNodeMetrics(a); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > answerTimeout {
				t.Errorf("it took %s", took)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestNobodyMeasuresBeforeAndAfter(t *testing.T) {
	k := &kubelets{}
	u := &usage{Storage: storage.NewStorage(0), scraper: k, nodes: listed(t)}
	if _, err := u.GetNodeMetrics(); err != nil || k.rounds.Load() != 0 {
		t.Errorf("before it runs: %d rounds, %v", k.rounds.Load(), err)
	}
}
