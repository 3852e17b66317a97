package kube

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

func TestBridge(t *testing.T) {
	theirs := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_server_x_total", Help: "Xs."}, []string{"kind"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "etcd_disk_y_seconds", Help: "Ys.", Buckets: []float64{1, 2}})
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_threads", Help: "Of the other."})
	theirs.MustRegister(counter, histogram, gauge)
	counter.WithLabelValues("a").Add(3)
	counter.WithLabelValues("b").Inc()
	histogram.Observe(1.5)

	ours := prometheus.NewPedanticRegistry()
	own := prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_threads", Help: "Of this one."})
	ours.MustRegister(own, bridge{theirs, []string{"etcd_server_", "etcd_disk_"}})
	const want = `
# HELP etcd_disk_y_seconds Ys.
# TYPE etcd_disk_y_seconds histogram
etcd_disk_y_seconds_bucket{le="1"} 0
etcd_disk_y_seconds_bucket{le="2"} 1
etcd_disk_y_seconds_bucket{le="+Inf"} 1
etcd_disk_y_seconds_sum 1.5
etcd_disk_y_seconds_count 1
# HELP etcd_server_x_total Xs.
# TYPE etcd_server_x_total counter
etcd_server_x_total{kind="a"} 3
etcd_server_x_total{kind="b"} 1
# HELP go_threads Of this one.
# TYPE go_threads gauge
go_threads 0
`
	for range 2 { // the second time shows what changed, and nothing twice
		if err := testutil.GatherAndCompare(ours, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	counter.WithLabelValues("b").Inc()
	if err := testutil.GatherAndCompare(ours, strings.NewReader(want), "etcd_server_x_total"); err == nil {
		t.Error("the bridge shows an old value")
	}
}

func TestOmitMetrics(t *testing.T) {
	gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: "coracle_test_stray", Help: "Of a part that runs elsewhere."}, []string{"kind"})
	legacyregistry.MustRegister(gauge)
	gauge.WithLabelValues("a").Set(1)
	there := func() int {
		n, err := testutil.GatherAndCount(legacyregistry.DefaultGatherer, "coracle_test_stray")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if there() != 1 {
		t.Fatal("it was not there")
	}
	OmitMetrics("coracle_test_stray", "coracle_test_nobody")
	if there() != 0 {
		t.Error("it is still there")
	}
}
