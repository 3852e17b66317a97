package localstorage

import (
	_ "embed" // the manifest
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/nodevolumes"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

//go:embed local-storage.yaml
var manifest []byte

// Volumes is what coracle reports of the local volumes of a node. It is empty on a node that never had one.
type Volumes struct {
	Volumes int `json:"volumes"` // that the API knows
	// Quota says for each directory whether the sizes of its volumes are enforced: "enforced (xfs)", "not enforced: ...".
	Quota map[string]string `json:"quota,omitempty"`
	// Left are the directories of volumes that the API does not know any more. Coracle never removes them.
	Left []string `json:"left,omitempty"`
}

// Addon is the row of the table of add-ons.
func Addon() addon.Addon {
	return addon.Addon{
		Name: "local-storage", About: "volumes of this node", Manifest: manifest,
		Report: state.NewReport("volumes", state.EachNode, "Volumes", lines, judge),
		ControlPlane: func(s addon.Server) []addon.Component {
			return []addon.Component{{Name: "local-volumes", Component: Orphans{Kubeconfig: s.Kubeconfig}, After: []addon.Event{addon.Leading}}}
		},
		Admission: func(config.Config) *addon.Admission {
			return &addon.Admission{Name: nodevolumes.Name, New: func() admission.Interface { return nodevolumes.New() }}
		},
		Node: func(n addon.Node) ([]addon.Component, error) {
			storage, err := New(Options{Kubeconfig: n.Kubeconfig, Node: n.Own, Report: func(v Volumes) { n.Report(v) }})
			return []addon.Component{{Name: "local-storage", Component: storage, After: []addon.Event{addon.Registered}}}, err
		},
	}
}

func lines(v Volumes) []string {
	if v.Volumes == 0 && len(v.Left) == 0 {
		return nil
	}
	out := []string{fmt.Sprintf("%d on this node", v.Volumes)}
	for _, dir := range slices.Sorted(maps.Keys(v.Quota)) {
		out = append(out, fmt.Sprintf("sizes in %s: %s", dir, v.Quota[dir]))
	}
	for _, dir := range v.Left {
		out = append(out, dir+" belongs to a volume that the cluster does not know any more")
	}
	return out
}

func judge(v Volumes) (problems []state.Problem, okText string) {
	for _, dir := range v.Left {
		problems = append(problems, state.Problem{Text: dir + " holds data of a volume that the cluster does not know any more",
			Fix: "make sure that nothing uses it, save what you need from it, and remove it"})
	}
	okText = fmt.Sprintf("%d volumes on this node", v.Volumes)
	for _, dir := range slices.Sorted(maps.Keys(v.Quota)) {
		okText += fmt.Sprintf("; sizes in %s: %s", dir, v.Quota[dir])
	}
	return problems, okText
}
