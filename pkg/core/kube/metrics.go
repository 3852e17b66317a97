package kube

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // requests to the API; upstream's commands import it too
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
)

// BridgeMetrics adds to this process's /metrics the families of the Prometheus library's default registry whose names begin
// with one of prefixes. Components that are not Kubernetes' register there. Its other families are in Kubernetes' registry
// too, such as those of Go and the process, or belong to components that are linked into the executable but run in another
// process. No prefix may be given twice.
func BridgeMetrics(prefixes ...string) { BridgeMetricsOf(prometheus.DefaultGatherer, prefixes...) }

// BridgeMetricsOf is BridgeMetrics for another gatherer, such as that of a child process.
func BridgeMetricsOf(from prometheus.Gatherer, prefixes ...string) {
	legacyregistry.RawMustRegister(bridge{from, prefixes})
}

// DecodeMetrics reads the answer of another process that was asked for its metrics.
func DecodeMetrics(header http.Header, body io.Reader) (out []*dto.MetricFamily, err error) {
	for d := expfmt.NewDecoder(body, expfmt.ResponseFormat(header)); ; {
		family := &dto.MetricFamily{}
		if err := d.Decode(family); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return out, err
		}
		out = append(out, family)
	}
}

// OmitMetrics removes families from this process's /metrics: a component that is linked into the executable registers them even
// if it runs in another process. A family that does not exist is no error.
func OmitMetrics(names ...string) {
	for _, name := range names {
		legacyregistry.Registerer().Unregister(named{prometheus.NewDesc(name, "", nil, nil)})
	}
}

// named is a collector with the same descriptor as another one, by which a registry identifies it.
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

// Describe implements prometheus.Collector. It sends nothing, because the metrics are not known yet.
func (bridge) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (b bridge) Collect(out chan<- prometheus.Metric) {
	families, err := b.from.Gather() // returns families also with an error
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
	return slices.ContainsFunc(b.prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
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
