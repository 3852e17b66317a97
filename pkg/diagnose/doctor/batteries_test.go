package doctor

import (
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

func TestBatteries(t *testing.T) {
	for name, tt := range map[string]struct {
		verdicts []check.Verdict
		result   check.Result
		finding  string
	}{
		"figures":                   {judgeMetrics(state.Metrics{Nodes: 2}), check.OK, "figures of 2 nodes"},
		"no figures":                {judgeMetrics(state.Metrics{Nodes: 1, Failed: map[string]string{"b": "connection refused"}}), check.Warn, "node b: connection refused"},
		"charts":                    {judgeCharts(nil), check.OK, "no HelmChart has failed"},
		"a chart":                   {judgeCharts([]state.Chart{{Name: "kube-system/web", Problem: "no such host"}}), check.Warn, "kube-system/web: no such host"},
		"no LoadBalancer":           {judgeLoadBalancers(nil), check.OK, "0 Services"},
		"a refused port":            {judgeLoadBalancers([]state.LoadBalancer{{Service: "a/b", Problem: "port 80/TCP is held"}}), check.Warn, "a/b has no address: port 80/TCP is held"},
		"a port partly":             {judgeLoadBalancers([]state.LoadBalancer{{Service: "a/b", Addresses: []string{"192.0.2.1"}, Problem: "node b"}}), check.Warn, "not at all addresses: node b"},
		"volumes":                   {judgeVolumes(state.LocalVolumes{Volumes: 3, Quota: map[string]string{"/v": "enforced (xfs)"}}), check.OK, "3 volumes on this node; sizes in /v: enforced (xfs)"},
		"a left folder":             {judgeVolumes(state.LocalVolumes{Left: []string{"/v/pvc-1"}}), check.Warn, "/v/pvc-1 holds data"},
		"policies":                  {judgePolicies(state.NetworkPolicy{Policies: 2, IsolatedPods: 5}), check.OK, "2 policies, 5 pods"},
		"policies that do not hold": {judgePolicies(state.NetworkPolicy{Problem: "br_netfilter"}), check.Fail, "not in force: br_netfilter"},
		"left out": {battery("servicelb", (*Doctor).loadBalancers)(&Doctor{Config: config.Config{Disable: []string{"servicelb"}}}, t.Context()),
			check.Skipped, "left out"},
	} {
		t.Run(name, func(t *testing.T) {
			if len(tt.verdicts) != 1 || tt.verdicts[0].Result != tt.result || !strings.Contains(tt.verdicts[0].Finding, tt.finding) {
				t.Errorf("%+v, want one that is %s: %s", tt.verdicts, tt.result, tt.finding)
			}
		})
	}
}
