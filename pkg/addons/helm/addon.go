package helm

import (
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/runtime/registries"
)

// FailedChart is what coracle reports of a HelmChart that is not in force as it should be.
type FailedChart struct {
	Name    string `json:"name"`    // NAMESPACE/NAME
	Problem string `json:"problem"` // what went wrong
}

// Addon is the row of the table of add-ons.
func Addon() addon.Addon {
	return addon.Addon{
		Name: "helm-controller", About: "charts that are not installed",
		Report:       state.NewReport("charts", state.LeadingServer, "Charts", lines, judge),
		ControlPlane: func(s addon.Server) []addon.Component { return components(s, false) },
		Disabled:     func(s addon.Server) []addon.Component { return components(s, true) },
	}
}

func components(s addon.Server, disabled bool) []addon.Component {
	dirs := s.Config.Dirs
	return []addon.Component{{Name: "helm-controller", After: []addon.Event{addon.Leading}, Component: HelmCharts{
		Kubeconfig: s.Admin,
		Namespaces: s.Config.API.HelmNamespaces,
		Charts:     dirs.Charts(),
		Copy:       dirs.ChartsToRead(),
		KeyFile:    filepath.Join(dirs.PKI(), "sa.key"),
		Registries: registries.NewCopied(dirs.Registries(), dirs.CopyOf),
		NoDefault:  s.Config.Node.NoDefaultRegistry,
		Disabled:   disabled,
		Report:     func(all []FailedChart) { s.Report(all) },
	}}}
}

func lines(all []FailedChart) (out []string) {
	for _, c := range all {
		out = append(out, c.Name+": "+c.Problem)
	}
	return out
}

func judge(all []FailedChart) (problems []state.Problem, fine string) {
	for _, c := range all {
		problems = append(problems, state.Problem{Text: "HelmChart " + c.Name + ": " + c.Problem,
			Fix: "correct the HelmChart or what it refers to; coracle tries again as soon as it changes"})
	}
	return problems, "no HelmChart has failed"
}
