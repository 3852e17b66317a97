package helm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	r := Addon().Report
	if problems, fine := r.Judge(json.RawMessage(`[]`)); len(problems) != 0 || fine != "no HelmChart has failed" || r.Lines(json.RawMessage(`[]`)) != nil {
		t.Errorf("without failed charts: %+v, %q", problems, fine)
	}
	failed := json.RawMessage(`[{"name":"kube-system/web","problem":"there is no charts/web.tgz on this server"}]`)
	if got := r.Lines(failed); !slices.Equal(got, []string{"kube-system/web: there is no charts/web.tgz on this server"}) {
		t.Errorf("lines are %q", got)
	}
	if problems, _ := r.Judge(failed); len(problems) != 1 || problems[0].Fails || !strings.Contains(problems[0].Text, "kube-system/web: there is no") {
		t.Errorf("judged %+v", problems)
	}
}
