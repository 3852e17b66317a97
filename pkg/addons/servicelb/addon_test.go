package servicelb

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

func TestReport(t *testing.T) {
	r := Addon().Report
	for name, tt := range map[string]struct {
		report   string
		lines    []string
		problems []state.Problem
		fine     string
	}{
		"none":   {report: `[]`, fine: "0 Services of type LoadBalancer have addresses"},
		"served": {report: `[{"service":"a/b","addresses":["192.0.2.1"]}]`, lines: []string{"1 of 1 Services have addresses"}, fine: "1 Services of type LoadBalancer have addresses"},
		"refused": {report: `[{"service":"web/front","addresses":["192.0.2.7"]},{"service":"web/other","addresses":[],"problem":"port 80/TCP of node alpha is held by Service web/front"}]`,
			lines:    []string{"1 of 2 Services have addresses", "web/other: port 80/TCP of node alpha is held by Service web/front"},
			problems: []state.Problem{{Text: "Service web/other has no address: port 80/TCP of node alpha is held by Service web/front", Fix: "coracle kubectl describe service"}}},
		"partly": {report: `[{"service":"a/b","addresses":["192.0.2.1"],"problem":"node b"}]`, lines: []string{"1 of 1 Services have addresses", "a/b: node b"},
			problems: []state.Problem{{Text: "Service a/b lacks some addresses: node b", Fix: "coracle kubectl describe service"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := r.Lines(json.RawMessage(tt.report)); !slices.Equal(got, tt.lines) {
				t.Errorf("lines are %q, want %q", got, tt.lines)
			}
			problems, fine := r.Judge(json.RawMessage(tt.report))
			if !slices.Equal(problems, tt.problems) || len(problems) == 0 && fine != tt.fine {
				t.Errorf("judged %+v, %q; want %+v, %q", problems, fine, tt.problems, tt.fine)
			}
		})
	}
}
