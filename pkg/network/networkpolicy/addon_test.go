package networkpolicy

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

func TestReport(t *testing.T) {
	r := Addon().Report
	for report, want := range map[string]struct {
		lines    []string
		problems []state.Problem
		fine     string
	}{
		`{"policies":0,"isolatedPods":0}`:  {fine: "0 policies, 0 pods of this node are isolated"},
		`{"policies":4,"isolatedPods":12}`: {lines: []string{"4, for 12 pods of this node"}, fine: "4 policies, 12 pods of this node are isolated"},
		`{"policies":4,"problem":"br_netfilter"}`: {lines: []string{"NOT IN FORCE: br_netfilter"},
			problems: []state.Problem{{Text: "policies are not in force: br_netfilter", Fix: "coracle logs --component network-policy", Fails: true}}},
	} {
		if got := r.Lines(json.RawMessage(report)); !slices.Equal(got, want.lines) {
			t.Errorf("%s: lines are %q, want %q", report, got, want.lines)
		}
		if problems, fine := r.Judge(json.RawMessage(report)); !slices.Equal(problems, want.problems) || fine != want.fine {
			t.Errorf("%s: judged %+v, %q", report, problems, fine)
		}
	}
}
