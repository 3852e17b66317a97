package networkpolicy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// metrics are the histograms of writes.
type metrics struct {
	sync    prometheus.Histogram
	inForce prometheus.Histogram
}

func newMetrics() metrics {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "coracle_network_policy_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.002, 2, 12),
		})
	}
	return metrics{
		sync:    histogram("sync_seconds", "How long one write of changes took."),
		inForce: histogram("in_force_seconds", "From when a change was seen to when it was in force."),
	}
}

// register adds them to the process' registry, with figures of the engine and the kernel.
func (e *enforcer) register() {
	read := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "coracle_network_policy_" + name, Help: help}, value)
	}
	legacyregistry.RawMustRegister(e.metrics.sync, e.metrics.inForce,
		read("policies", "NetworkPolicies in the cluster.", func() float64 {
			policies, _ := e.count()
			return float64(policies)
		}),
		read("isolated_pods", "Pods of this node that policies select.", func() float64 {
			e.mu.Lock()
			defer e.mu.Unlock()
			return float64(e.engine.isolated())
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "coracle_network_policy_denied_packets_total", Help: "Packets that policies did not allow, since the table was written.",
		}, func() float64 {
			if policies, _ := e.count(); policies == 0 {
				return 0
			}
			packets, err := nft.Packets(footprint.PolicyTable, "denied")
			if err != nil {
				return 0
			}
			return float64(packets)
		}))
}

// measured observes a write that began at began; since is when the oldest of its changes came.
func (m metrics) measured(began, since time.Time) {
	m.sync.Observe(time.Since(began).Seconds())
	if !since.IsZero() {
		m.inForce.Observe(time.Since(since).Seconds())
	}
}
