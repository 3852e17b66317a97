package node

import (
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// showMetrics makes /metrics show the metrics of all components of this process, and of no others. flannel has none.
func showMetrics(cfg config.Config) {
	kube.BridgeMetrics("containerd_")
	if !cfg.Disabled("dns") {
		kube.BridgeMetrics("coredns_")
	}
	kube.OmitMetrics( // metrics of the API server and of controllers
		"aggregator_discovery_aggregation_count_total",
		"apiserver_kube_aggregator_x509_insecure_sha1_total", "apiserver_kube_aggregator_x509_missing_san_total",
		"node_collector_update_all_nodes_health_duration_seconds", "node_collector_update_node_health_duration_seconds",
	)
}
