package metricsserver

import (
	_ "embed" // the manifest
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

//go:embed metrics-server.yaml
var manifest []byte

// Scrapes is what coracle reports of the kubelets that it asks.
type Scrapes struct {
	Nodes  int               `json:"nodes"`            // how many it asks
	Failed map[string]string `json:"failed,omitempty"` // why there are no figures, by node
}

// Addon is the row of the table of add-ons.
func Addon() addon.Addon {
	return addon.Addon{
		Name: "metrics-server", About: "figures of nodes and pods", Manifest: manifest,
		Report: state.NewReport("metrics", state.EachServer, "Metrics", lines, judge),
		ControlPlane: func(s addon.Server) []addon.Component {
			in := func(file string) string { return filepath.Join(s.Config.Dirs.PKI(), file) }
			return []addon.Component{{Name: "metrics-server", Component: &MetricsServer{
				CA: in("ca.crt"), Cert: in("apiserver-kubelet-client.crt"), Key: in("apiserver-kubelet-client.key"),
				Report: func(r Scrapes) { s.Report(r) },
			}}}
		},
	}
}

// lines are about nodes without figures only: figures are the normal case.
func lines(r Scrapes) (out []string) {
	for _, node := range slices.Sorted(maps.Keys(r.Failed)) {
		out = append(out, fmt.Sprintf("none of %s: %s", node, r.Failed[node]))
	}
	return out
}

func judge(r Scrapes) (problems []state.Problem, fine string) {
	for _, node := range slices.Sorted(maps.Keys(r.Failed)) {
		problems = append(problems, state.Problem{Text: fmt.Sprintf("there are no figures of node %s: %s", node, r.Failed[node]),
			Fix: "check node-access, and check kubelet there"})
	}
	if r.Nodes == 0 {
		return problems, "no node has been measured yet"
	}
	return problems, fmt.Sprintf("there are figures of %d nodes", r.Nodes)
}
