package controlplane

import (
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// showMetrics makes /metrics of this process that of all its parts, and of no other.
func showMetrics(cfg config.Config) {
	if !cfg.Datastore.External() { // else etcd is linked but does not run, and would be without a leader
		kube.BridgeMetrics(
			"etcd_cluster_", "etcd_debugging_", "etcd_disk_", "etcd_mvcc_", "etcd_network_", "etcd_server_", "etcd_snap_",
			"grpc_server_", // by which etcd serves
		)
	}
	kube.OmitMetrics( // of the kubelet
		"kubelet_imagemanager_inmemory_pulledrecords_usage_percent", "kubelet_imagemanager_inmemory_pullintents_usage_percent",
		"kubelet_imagemanager_ondisk_pulledrecords", "kubelet_imagemanager_ondisk_pullintents",
	)
}
