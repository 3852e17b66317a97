package metricsserver

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestReport(t *testing.T) {
	r := Addon().Report
	for report, want := range map[string]string{``: "no node has been measured yet", `{"nodes":2}`: "there are figures of 2 nodes"} {
		raw := json.RawMessage(report)
		if report == "" {
			raw = nil
		}
		if problems, fine := r.Judge(raw); len(problems) != 0 || fine != want || r.Lines(raw) != nil {
			t.Errorf("%q: judged %+v, %q", report, problems, fine)
		}
	}
	failed := json.RawMessage(`{"nodes":3,"failed":{"gamma":"timeout","beta":"connection refused"}}`)
	if got := r.Lines(failed); !slices.Equal(got, []string{"none of beta: connection refused", "none of gamma: timeout"}) {
		t.Errorf("lines are %q", got)
	}
	if problems, _ := r.Judge(failed); len(problems) != 2 || problems[0].Text != "there are no figures of node beta: connection refused" {
		t.Errorf("judged %+v", problems)
	}
}
