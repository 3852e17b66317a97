// Package addons is the table of coracle's add-ons: the services that --disable leaves out.
package addons

import (
	embedded "github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/addons/gateway"
	"github.com/coracle-dev/coracle/pkg/addons/helm"
	"github.com/coracle-dev/coracle/pkg/addons/localstorage"
	"github.com/coracle-dev/coracle/pkg/addons/metricsserver"
	"github.com/coracle-dev/coracle/pkg/addons/runtimes"
	"github.com/coracle-dev/coracle/pkg/addons/servicelb"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// All returns the add-ons in the order in which coracle status and coracle doctor show them.
//
// dns and kube-proxy are rows for their names only: other components depend on them, so packages node and controlplane
// add them.
func All() []addon.Addon {
	return []addon.Addon{
		{Name: "dns", Report: clusterdns.Report()},
		{Name: "kube-proxy"},
		metricsserver.Addon(),
		helm.Addon(),
		servicelb.Addon(),
		gateway.Addon(),
		localstorage.Addon(),
		networkpolicy.Addon(),
		runtimes.Addon(),
	}
}

// Reports returns the reports of add-ons, and of what cannot be disabled but reports in the same way.
func Reports() (all []state.Report) {
	for _, a := range All() {
		if a.Report.Key != "" {
			all = append(all, a.Report)
		}
	}
	return append(all, registries.Report())
}

// Manifests returns the manifests of add-ons. Package manifests leaves out those of disabled ones.
func Manifests() (all []embedded.File) {
	for _, a := range All() {
		if a.Manifest != nil {
			all = append(all, embedded.File{Name: a.Name + ".yaml", Data: a.Manifest})
		}
	}
	return all
}
