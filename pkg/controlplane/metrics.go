package controlplane

import (
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// showMetrics makes /metrics show the metrics of all components of this process, and of no others.
func showMetrics(cfg config.Config) {
	if !cfg.Datastore.External() { // otherwise etcd is linked but does not run, and would show that it has no leader
		kube.BridgeMetrics(
			"etcd_cluster_", "etcd_debugging_", "etcd_disk_", "etcd_mvcc_", "etcd_network_", "etcd_server_", "etcd_snap_",
			"grpc_server_", // of etcd's server
		)
	}
	kube.OmitMetrics( // metrics of the kubelet
		"kubelet_imagemanager_inmemory_pulledrecords_usage_percent", "kubelet_imagemanager_inmemory_pullintents_usage_percent",
		"kubelet_imagemanager_ondisk_pulledrecords", "kubelet_imagemanager_ondisk_pullintents",
	)
}
