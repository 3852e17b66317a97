package controlplane

import (
	genericserver "k8s.io/apiserver/pkg/server"

	"github.com/coracle-dev/coracle/pkg/addons/metricsserver"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/kubernetes/apiserver"
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

// resourceMetrics is metrics-server, which the API server serves; nil if it is disabled.
type resourceMetrics struct{ *metricsserver.MetricsServer }

func newResourceMetrics(cfg config.Config, report *state.Recorder) resourceMetrics {
	if cfg.Disabled("metrics-server") {
		return resourceMetrics{}
	}
	files := apiserverFiles(cfg.Dirs)
	return resourceMetrics{&metricsserver.MetricsServer{
		CA: files.KubeletCA, Cert: files.KubeletClientCert, Key: files.KubeletClientKey,
		Report: func(m state.Metrics) { report.Detail(state.MetricsDetail, m) },
	}}
}

// groups are the API's.
func (m resourceMetrics) groups() []apiserver.Group {
	if m.MetricsServer == nil {
		return nil
	}
	return []apiserver.Group{{
		Scheme: m.Scheme(),
		Install: func(server *genericserver.GenericAPIServer, cluster apiserver.Cluster) error {
			return m.Install(server, metricsserver.Cluster(cluster))
		},
	}}
}

// add enters it into g.
func (m resourceMetrics) add(g *lifecycle.Group, needs ...*lifecycle.Unit) {
	if m.MetricsServer != nil {
		g.Add("metrics-server", m.MetricsServer, needs...)
	}
}
