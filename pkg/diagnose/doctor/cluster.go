package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
)

// condition returns a condition of a node.
func condition(n corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{Status: corev1.ConditionUnknown, Message: "the kubelet has not reported yet"}
}

// notReady returns a remark about a node that is not Ready; "" for other nodes.
func notReady(n corev1.Node) string {
	if condition(n, corev1.NodeReady).Status == corev1.ConditionTrue {
		return ""
	}
	return " (which is not Ready)"
}

func (d *Doctor) nodeConditions(context.Context) []check.Verdict {
	nodes, err := d.nodes()
	if err != nil {
		return check.Skipf("%v", err)
	}
	if d.OnlyNode {
		for _, n := range nodes {
			if n.Name == d.Config.Node.Name {
				return judgeNodes([]corev1.Node{n}, n.Name)
			}
		}
		nodes = nil
	}
	return judgeNodes(nodes, d.Config.Node.Name)
}

// judgeNodes judges the conditions of nodes, and fails if this machine's own node is not among them.
func judgeNodes(nodes []corev1.Node, own string) (out []check.Verdict) {
	found := false
	cordoned := 0
	for _, n := range nodes {
		found = found || n.Name == own
		if n.Spec.Unschedulable {
			cordoned++
		}
		if c := condition(n, corev1.NodeReady); c.Status != corev1.ConditionTrue {
			out = append(out, check.Failf("run coracle doctor there; if it is gone for good: coracle node remove "+n.Name,
				"node %s is not Ready: %s", n.Name, c.Message)...)
		}
		for kind, fix := range pressures {
			if c := condition(n, kind); c.Status == corev1.ConditionTrue {
				out = append(out, check.Failf(fix, "node %s has %s: %s", n.Name, kind, c.Message)...)
			}
		}
	}
	if !found {
		out = append(out, check.Failf("check kubelet; coracle logs --component kubelet", "the cluster has no node %s, which is this machine", own)...)
	}
	text := fmt.Sprintf("%d Ready", len(nodes))
	if cordoned > 0 {
		text += fmt.Sprintf(", %d of them cordoned: coracle kubectl uncordon NODE allows pods again", cordoned)
	}
	return check.Else(first(out, 10), check.Okf("%s", text))
}

// pressures are conditions that are bad when they are true.
var pressures = map[corev1.NodeConditionType]string{
	corev1.NodeMemoryPressure:     "end pods, give them limits, or add memory",
	corev1.NodeDiskPressure:       "make room: coracle images list, and check disk-space there",
	corev1.NodePIDPressure:        "end pods with many processes, or raise kernel.pid_max",
	corev1.NodeNetworkUnavailable: "check components there: flannel",
}

func (d *Doctor) leases(ctx context.Context) []check.Verdict {
	api := d.api()
	nodes, err := d.nodes()
	if err != nil || api.err != nil {
		return check.Skipf("%v", errNoAPI)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	list, err := api.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return check.Skipf("%v", errNoAPI)
	}
	return judgeLeases(nodes, list.Items, time.Now())
}

// judgeLeases finds nodes that have not renewed their lease for so long that their pods will be evicted.
func judgeLeases(nodes []corev1.Node, leases []coordinationv1.Lease, now time.Time) (out []check.Verdict) {
	const dead = 40 * time.Second
	last := map[string]time.Time{}
	for _, l := range leases {
		if l.Spec.RenewTime != nil {
			last[l.Name] = l.Spec.RenewTime.Time
		}
	}
	for _, n := range nodes {
		switch when, ok := last[n.Name]; {
		case !ok && now.Sub(n.CreationTimestamp.Time) > dead:
			out = append(out, check.Warnf("check kubelet there", "node %s has never renewed its lease", n.Name)...)
		case ok && now.Sub(when) > dead:
			out = append(out, check.Failf("check whether the machine is up and reaches the servers: coracle doctor there",
				"node %s renewed its lease %s ago", n.Name, now.Sub(when).Round(time.Second))...)
		}
	}
	return check.Else(first(out, 10), check.Okf("all %d nodes renew their leases", len(nodes)))
}

// mostPods limits the number of pods that are checked.
const mostPods = 5000

func (d *Doctor) pods(ctx context.Context) []check.Verdict {
	api := d.api()
	options := metav1.ListOptions{Limit: mostPods}
	if d.Config.Role == config.Agent || d.OnlyNode {
		// The kubelet is authorised to read the pods of its own node.
		api = d.connectAs(d.Config.Dirs.NodeConfig("kubelet.kubeconfig"), "https://"+d.Config.Node.Balancer().String())
		options.FieldSelector = "spec.nodeName=" + d.Config.Node.Name
	}
	if api.err != nil {
		return check.Skipf("%v", errNoAPI)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	list, err := api.client.CoreV1().Pods("").List(ctx, options)
	if err != nil {
		return check.Skipf("%v", errNoAPI)
	}
	return judgePods(list.Items, time.Now())
}

// judgePods finds pods that do not run although they should.
func judgePods(pods []corev1.Pod, now time.Time) (out []check.Verdict) {
	const patience = 30 * time.Second
	running := 0
	for _, p := range pods {
		name := p.Namespace + "/" + p.Name
		describe := fmt.Sprintf("coracle kubectl -n %s describe pod %s", p.Namespace, p.Name)
		switch reason := whyNot(p); {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case p.DeletionTimestamp != nil && now.Sub(p.DeletionTimestamp.Time) > patience:
			out = append(out, check.Warnf(describe, "pod %s should have ended %s ago", name, now.Sub(p.DeletionTimestamp.Time).Round(time.Second))...)
		case reason == "" && p.Status.Phase == corev1.PodRunning:
			running++
		case reason == "" && now.Sub(p.CreationTimestamp.Time) > patience:
			out = append(out, check.Warnf(describe, "pod %s is %s for %s", name, p.Status.Phase, now.Sub(p.CreationTimestamp.Time).Round(time.Second))...)
		case reason != "":
			out = append(out, check.Warnf(describe, "pod %s does not start: %s", name, reason)...)
		}
	}
	return check.Else(first(out, 10), check.Okf("%d run, and all others have ended", running))
}

// whyNot returns what prevents a pod from running, "" if that is not known.
func whyNot(p corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "no node takes it: " + c.Message
		}
	}
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		w := s.State.Waiting
		if w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" || w.Reason == "" {
			continue
		}
		text := fmt.Sprintf("container %s: %s", s.Name, w.Reason)
		if last := s.LastTerminationState.Terminated; last != nil {
			text += fmt.Sprintf(", the last one ended with code %d (%s)", last.ExitCode, last.Reason)
		} else if w.Message != "" {
			line, _, _ := strings.Cut(w.Message, "\n")
			text += ": " + line
		}
		return text
	}
	return ""
}
