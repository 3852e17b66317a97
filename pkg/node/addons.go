package node

import (
	"fmt"

	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// addAddons adds the components of the enabled add-ons to g, and returns the units that the kubelet waits for.
func addAddons(g *lifecycle.Group, of addon.Node, report *state.Recorder, units map[addon.Event]*lifecycle.Unit) (beforePods []*lifecycle.Unit, err error) {
	for _, a := range addons.All() {
		if a.Node == nil || !a.Enabled(of.Config) {
			continue
		}
		of.Report = func(r any) { report.Detail(a.Report.Key, r) }
		components, err := a.Node(of)
		if err != nil {
			return nil, fmt.Errorf("preparing %s: %w", a.Name, err)
		}
		for _, c := range components {
			unit := g.Add(c.Name, c.Component, c.Needs(units)...)
			if c.BeforePods {
				beforePods = append(beforePods, unit)
			}
		}
	}
	return beforePods, nil
}

// showMetrics makes /metrics show the metrics of all components of this process, and of no others. flannel has none.
func showMetrics(cfg config.Config) {
	kube.BridgeMetrics("containerd_")
	kube.OmitMetrics( // metrics of the API server and of controllers
		"aggregator_discovery_aggregation_count_total",
		"apiserver_kube_aggregator_x509_insecure_sha1_total", "apiserver_kube_aggregator_x509_missing_san_total",
		"node_collector_update_all_nodes_health_duration_seconds", "node_collector_update_node_health_duration_seconds",
	)
	if cfg.Role == config.Server {
		legacyregistry.RawMustRegister(snapshotMetrics(cfg.Dirs.LastSnapshot())...)
	}
}
