package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

// battery is a probe of one of the services that can be left out. Each tells of its own work; what it tells is judged.
func battery(name string, judge func(*Doctor) []check.Verdict) func(*Doctor, context.Context) []check.Verdict {
	return func(d *Doctor, _ context.Context) []check.Verdict {
		if d.Config.Disabled(name) {
			return check.Skipf("it is left out, by --disable")
		}
		return judge(d)
	}
}

// nothingTold is what is said where a battery has told nothing: of those that work on one server only, another one may know.
func (d *Doctor) nothingTold() []check.Verdict {
	if d.Config.Role == config.Server && d.several() {
		return check.Skipf("nothing is told of it here: ask the server that leads")
	}
	return check.Okf("nobody uses it")
}

func (d *Doctor) metrics() []check.Verdict {
	var m state.Metrics
	if !d.detail(state.MetricsDetail, &m) {
		return check.Skipf("nothing is told of it yet")
	}
	return judgeMetrics(m)
}

func judgeMetrics(m state.Metrics) (out []check.Verdict) {
	for _, node := range slices.Sorted(maps.Keys(m.Failed)) {
		out = append(out, check.Warnf("check node-access, and check kubelet there", "there are no figures of node %s: %s", node, m.Failed[node])...)
	}
	return check.Else(first(out, 10), check.Okf("there are figures of %d nodes", m.Nodes))
}

func (d *Doctor) charts() []check.Verdict {
	var all []state.Chart
	if !d.detail(state.ChartsDetail, &all) {
		return d.nothingTold()
	}
	return judgeCharts(all)
}

func judgeCharts(all []state.Chart) (out []check.Verdict) {
	for _, c := range all {
		out = append(out, check.Warnf("mend the HelmChart or what it names: it is tried again as soon as it changes", "HelmChart %s: %s", c.Name, c.Problem)...)
	}
	return check.Else(first(out, 10), check.Okf("no HelmChart has failed"))
}

func (d *Doctor) loadBalancers() []check.Verdict {
	var all []state.LoadBalancer
	if !d.detail(state.LoadBalancersDetail, &all) {
		return d.nothingTold()
	}
	return judgeLoadBalancers(all)
}

func judgeLoadBalancers(all []state.LoadBalancer) (out []check.Verdict) {
	for _, l := range all {
		switch {
		case len(l.Addresses) == 0:
			out = append(out, check.Warnf("coracle kubectl describe service", "Service %s has no address: %s", l.Service, l.Problem)...)
		case l.Problem != "":
			out = append(out, check.Warnf("coracle kubectl describe service", "Service %s is not at all addresses: %s", l.Service, l.Problem)...)
		}
	}
	return check.Else(first(out, 10), check.Okf("%d Services of type LoadBalancer have addresses", len(all)))
}

func (d *Doctor) volumes() []check.Verdict {
	var v state.LocalVolumes
	if !d.detail(state.VolumesDetail, &v) {
		return check.Okf("nobody uses it")
	}
	return judgeVolumes(v)
}

func judgeVolumes(v state.LocalVolumes) (out []check.Verdict) {
	for _, folder := range v.Left {
		out = append(out, check.Warnf("see that nothing uses it, keep what you need of it, and remove it", "%s holds data of a volume that the cluster does not know any more", folder)...)
	}
	text := fmt.Sprintf("%d volumes on this node", v.Volumes)
	for _, dir := range slices.Sorted(maps.Keys(v.Quota)) {
		text += fmt.Sprintf("; sizes in %s: %s", dir, v.Quota[dir])
	}
	return check.Else(first(out, 10), check.Okf("%s", text))
}

func (d *Doctor) policies() []check.Verdict {
	var p state.NetworkPolicy
	if !d.detail(state.NetworkPolicyDetail, &p) {
		if d.Config.Network.Backend == config.BackendNone {
			return check.Skipf("another CNI plugin sees to it")
		}
		return check.Okf("nobody uses it")
	}
	return judgePolicies(p)
}

func judgePolicies(p state.NetworkPolicy) []check.Verdict {
	if p.Problem != "" {
		return check.Failf("coracle logs --component network-policy", "policies are not in force: %s", p.Problem)
	}
	return check.Okf("%d policies, %d pods of this node are isolated", p.Policies, p.IsolatedPods)
}
