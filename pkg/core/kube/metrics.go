package kube

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // requests to the API; upstream's commands import it too
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
)

// BridgeMetrics has this process' /metrics show what parts that are not Kubernetes' enter into the Prometheus
// library's own registry, once each: of that registry, the families whose names begin with one of prefixes. What it
// has besides is either in Kubernetes' registry too, such as Go's and the process' own, or of parts that are linked
// into the executable but run in another process. No prefix may be given twice.
func BridgeMetrics(prefixes ...string) {
	legacyregistry.RawMustRegister(bridge{prometheus.DefaultGatherer, prefixes})
}

// OmitMetrics takes families out of this process' /metrics: those that a part enters when it is linked into the
// executable, although it runs in another process, where they mean something. One that is not there is no mistake.
func OmitMetrics(names ...string) {
	for _, name := range names {
		legacyregistry.Registerer().Unregister(named{prometheus.NewDesc(name, "", nil, nil)})
	}
}

// named is a collector that has the identity of another one, which is what a registry knows it by.
type named struct{ desc *prometheus.Desc }

// Describe implements prometheus.Collector.
func (n named) Describe(out chan<- *prometheus.Desc) { out <- n.desc }

// Collect implements prometheus.Collector.
func (named) Collect(chan<- prometheus.Metric) {}

// bridge is a collector of what another registry gathers.
type bridge struct {
	from     prometheus.Gatherer
	prefixes []string
}

// Describe implements prometheus.Collector. It says nothing: what there will be is not known yet.
func (bridge) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (b bridge) Collect(out chan<- prometheus.Metric) {
	families, err := b.from.Gather() // what could be gathered is there in spite of an error
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("coracle_bridge", "Metrics of other registries.", nil, nil), err)
	}
	for _, f := range families {
		if !b.wants(f.GetName()) {
			continue
		}
		desc := prometheus.NewDesc(f.GetName(), f.GetHelp(), nil, nil)
		for _, m := range f.GetMetric() {
			out <- gathered{desc, m}
		}
	}
}

func (b bridge) wants(name string) bool {
	for _, prefix := range b.prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// gathered is a metric that another registry has gathered.
type gathered struct {
	desc   *prometheus.Desc
	metric *dto.Metric
}

// Desc implements prometheus.Metric.
func (g gathered) Desc() *prometheus.Desc { return g.desc }

// Write implements prometheus.Metric.
func (g gathered) Write(to *dto.Metric) error {
	proto.Merge(to, g.metric)
	return nil
}
