package node

// bridged are the metrics of containerd and of the name server, by how their names begin. flannel has none.
var bridged = []string{"containerd_", "coredns_"}

// strays are of the API server and of a controller.
var strays = []string{
	"aggregator_discovery_aggregation_count_total",
	"apiserver_kube_aggregator_x509_insecure_sha1_total", "apiserver_kube_aggregator_x509_missing_san_total",
	"node_collector_update_all_nodes_health_duration_seconds", "node_collector_update_node_health_duration_seconds",
}
