package controlplane

import (
	"context"
	"slices"

	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/kubernetes/apiserver"
)

// addonParts are the parts of the add-ons in the control plane. They are created before the API server, which serves the API
// groups and runs the admission plugins among them.
type addonParts struct {
	components []addon.Component
	groups     []apiserver.Group
	admission  []addon.Admission
}

func newAddonParts(cfg config.Config, report *state.Recorder, joins *joinEndpoint) (parts addonParts) {
	pools := len(cfg.Network.Pools) > 0 || cfg.Network.MetalLB
	addresses := addon.NewGatewayAddresses(pools && !cfg.Disabled("servicelb"), !cfg.Disabled("gateway"))
	for _, a := range addons.All() {
		if a.Admission != nil {
			parts.admission = append(parts.admission, *a.Admission(cfg))
		}
		components := a.ControlPlane
		if !a.Enabled(cfg) {
			components = a.Disabled
		}
		if components == nil {
			continue
		}
		own := components(addon.Server{
			Config:     cfg,
			Kubeconfig: cfg.Dirs.ServerConfig("coracle.kubeconfig"),
			Admin:      cfg.Dirs.ServerConfig("admin.kubeconfig"),
			Ping:       joins.hub.Ping,
			Voter:      joins.voter,
			Addresses:  addresses,
			Shares:     joins.shares,
			Report:     func(r any) { report.Detail(a.Report.Key, r) },
		})
		for i, c := range own {
			if slices.Contains(c.After, addon.Leading) {
				own[i].Component = ofLeader{c.Component, func() { report.Detail(a.Report.Key, nil) }}
			}
		}
		parts.components = append(parts.components, own...)
	}
	for _, c := range parts.components {
		if group, ok := c.Component.(apiserver.Group); ok {
			parts.groups = append(parts.groups, group)
		}
	}
	return parts
}

// ofLeader is a component whose report is void when it ends, because another server leads.
type ofLeader struct {
	lifecycle.Component
	forget func()
}

// Run implements lifecycle.Component.
func (o ofLeader) Run(ctx context.Context, ready func()) error {
	defer o.forget()
	return o.Component.Run(ctx, ready)
}

// add adds the components to g.
func (p addonParts) add(g *lifecycle.Group, units map[addon.Event]*lifecycle.Unit, objects *lifecycle.Unit) {
	for _, c := range p.components {
		g.Add(c.Name, c.Component, c.Needs(units, objects)...)
	}
}

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
