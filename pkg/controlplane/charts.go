package controlplane

import (
	"github.com/coracle-dev/coracle/pkg/addons/helm"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// charts enters what applies HelmCharts. Disabled, it still lets people delete them.
func (b batteries) charts(g *lifecycle.Group) {
	g.Add("helm-controller", helm.HelmCharts{
		Kubeconfig: b.cfg.Dirs.ServerConfig("admin.kubeconfig"),
		Charts:     b.cfg.Dirs.Charts(),
		KeyFile:    pkiFile(b.cfg.Dirs, "sa.key"),
		Registries: registries.NewLive(b.cfg.Dirs.Registries()),
		NoDefault:  b.cfg.Node.NoDefaultRegistry,
		Disabled:   b.cfg.Disabled("helm-controller"),
		Report:     func(c []state.Chart) { b.report.Detail(state.ChartsDetail, c) },
	}, b.lead, b.objects)
}
