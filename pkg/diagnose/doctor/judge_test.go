package doctor

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// expect compares the worst of some verdicts, and texts that they must have. None at all are as good as ok.
func expect(t *testing.T, got []check.Verdict, want check.Result, texts ...string) {
	t.Helper()
	worst, text := check.OK, ""
	for _, v := range got {
		if v.Result == check.Fail || v.Result == check.Warn && worst != check.Fail {
			worst = v.Result
		}
		text += string(v.Result) + " " + v.Finding + "; " + v.Fix + "\n"
	}
	if worst != want {
		t.Errorf("%s, want %s: %s", worst, want, text)
	}
	for _, s := range texts {
		if !strings.Contains(text, s) {
			t.Errorf("%q lacks %q", text, s)
		}
	}
}

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func TestProcesses(t *testing.T) {
	running := func(children ...state.Child) processes {
		return processes{frontAlive: true, front: state.Process{PID: 1, Version: "v1", Children: children},
			children: map[string]state.Process{"node": {PID: 7}}, stuck: map[string]string{}}
	}
	ready := state.Child{Name: "node", State: "ready"}
	frozen := running(ready)
	frozen.stuck["node"] = stuck(states("T"), func() {})
	joining := running()
	joining.front.Phases = []state.Phase{{Name: "join", Waiting: "10.0.0.1:6443 refuses"}}
	tests := []struct {
		name  string
		p     processes
		want  check.Result
		texts []string
	}{
		{"well", running(ready), check.OK, []string{"coracle v1 (1), node (7)"}},
		{"starting", running(state.Child{Name: "node", State: "starting", Started: ago(time.Second)}), check.Warn, []string{"coracle wait"}},
		{"starting for long", running(state.Child{Name: "node", State: "starting", Started: ago(time.Hour), Status: "etcd waits"}), check.Fail, []string{"1h0m0s: etcd waits"}},
		{"falls", running(state.Child{Name: "node", State: "backoff", LastExit: "exited with 1: no disk"}), check.Fail, []string{"does not stay up: it exited with 1: no disk"}},
		{"frozen", frozen, check.Fail, []string{"stopped by a signal", "kill -CONT 7"}},
		{"joining", joining, check.Fail, []string{"coracle is waiting: 10.0.0.1:6443 refuses"}},
		{"gone", processes{}, check.Fail, []string{"does not run here", "systemctl start coracle"}},
		{"child process left over", processes{children: map[string]state.Process{"node": {PID: 7}}}, check.Fail, []string{"pid 7) runs without a supervisor"}},
		{"cannot be read", processes{err: errors.New("permission denied")}, check.Fail, []string{"use sudo"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, tt.p.judge(now), tt.want, tt.texts...) })
	}
	expect(t, judgeRestarts([]state.Child{{Name: "node", Restarts: 2, LastExit: "was killed", LastExitAt: ago(time.Minute)}}, now), check.Warn, "2 times", "was killed")
	expect(t, judgeRestarts([]state.Child{{Name: "node", Restarts: 2, LastExit: "was killed", LastExitAt: ago(2 * time.Hour)}}, now), check.OK)
	expect(t, judgeUnits("node", []lifecycle.Status{
		{Name: "a", State: lifecycle.Ready}, {Name: "b", State: lifecycle.Waiting}, {Name: "c", State: lifecycle.Standby},
	}, now), check.OK)
	expect(t, judgeUnits("node", []lifecycle.Status{{Name: "dns", State: lifecycle.Starting, Started: ago(time.Hour), Waiting: "the network"}}, now), check.Fail, "waits for the network", "logs --component dns")
	expect(t, judgeUnits("control-plane", []lifecycle.Status{{Name: "kube-dns", State: lifecycle.Starting, Started: ago(time.Hour), Restarted: ago(time.Second)}}, now), check.Warn, "is starting")
	expect(t, judgeUnits("node", []lifecycle.Status{{Name: "dns", State: lifecycle.Ready, Waiting: "an answer"}}, now), check.Warn, "has a problem: an answer")
	expect(t, judgeUnits("node", []lifecycle.Status{{Name: "dns", State: lifecycle.Failed, Error: "no port"}}, now), check.Fail, "no port")
	expect(t, judgeManifests([]state.Manifest{{File: "a", State: state.ManifestApplied}, {File: "b.yaml", State: state.ManifestFailed, Error: "line 1"}, {State: state.ManifestPending}}), check.Fail, "b.yaml: line 1")
}

func TestCertificates(t *testing.T) {
	day := 24 * time.Hour
	tests := []struct {
		name string
		e    pki.Expiry
		role config.Role
		want check.Result
		text string
	}{
		{"fine", pki.Expiry{NotAfter: now.Add(200 * day), RenewAt: now.Add(80 * day)}, config.Server, check.OK, ""},
		{"expired", pki.Expiry{Name: "apiserver", NotAfter: ago(day), RenewAt: ago(100 * day)}, config.Server, check.Fail, "restart coracle"},
		{"expired on an agent", pki.Expiry{Name: "node", NotAfter: ago(day), RenewAt: ago(100 * day)}, config.Agent, check.Fail, "restart coracle, which renews it at a server"},
		{"was not renewed", pki.Expiry{NotAfter: now.Add(day), RenewAt: ago(100 * day)}, config.Server, check.Warn, "should have been renewed"},
		{"authority", pki.Expiry{NotAfter: now.Add(1000 * day)}, config.Server, check.OK, ""},
		{"authority ends", pki.Expiry{Name: "ca", NotAfter: now.Add(10 * day)}, config.Server, check.Warn, "authority ca expires on 2026-11-11; check the clock; if it is right, run on a server: coracle certificate rotate-ca"},
		{"damaged", pki.Expiry{Name: "ca", Error: "no PEM"}, config.Server, check.Fail, "no PEM"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, judgeExpiry(tt.e, tt.role, now), tt.want, tt.text) })
	}
}

func TestEtcd(t *testing.T) {
	member := func(name string, leader, answers bool) members.MemberStatus {
		return members.MemberStatus{Member: join.Member{Name: name}, Leader: leader, Answers: answers}
	}
	three := func(change func(*members.Status)) members.Status {
		s := members.Status{Quorum: true, Quota: 100 << 20, InUse: 10 << 20,
			Members: []members.MemberStatus{member("a", true, true), member("b", false, true), member("c", false, true)}}
		change(&s)
		return s
	}
	const fast = time.Millisecond
	tests := []struct {
		name  string
		s     members.Status
		read  time.Duration
		err   error
		want  check.Result
		texts []string
	}{
		{"well", three(func(*members.Status) {}), fast, nil, check.OK, []string{"3 of 3 members answer, a leads"}},
		{"one is away", three(func(s *members.Status) { s.Members[2].Answers = false }), fast, nil, check.Fail, []string{"member c does not answer", "coracle etcd remove c"}},
		{"no quorum", three(func(s *members.Status) {
			s.Quorum, s.Members[2].Answers, s.Members[0].Answers = false, false, false
		}), 0, errors.New("x"), check.Fail, []string{"no quorum (1 of 3", "reset-quorum"}},
		{"election", three(func(s *members.Status) { s.Members[0].Leader = false }), fast, nil, check.Warn, []string{"no leader"}},
		{"full", three(func(s *members.Status) { s.Alarms = []members.Alarm{{Member: "b", Kind: "NOSPACE"}} }), fast, nil, check.Fail, []string{"alarm NOSPACE of b", "etcd defrag"}},
		{"damaged", three(func(s *members.Status) { s.Alarms = []members.Alarm{{Member: "b", Kind: "CORRUPT"}} }), fast, nil, check.Fail, []string{"CORRUPT", "high-availability.md"}},
		{"nearly full", three(func(s *members.Status) { s.InUse = 90 << 20 }), fast, nil, check.Warn, []string{"90 of 100 MiB"}},
		{"slow", three(func(*members.Status) {}), 300 * time.Millisecond, nil, check.Warn, []string{"takes 300ms", "disk-latency"}},
		{"very slow", three(func(*members.Status) {}), 0, errors.New("deadline"), check.Warn, []string{"in time: deadline"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, judgeEtcd(tt.s, tt.read, tt.err), tt.want, tt.texts...) })
	}
}

func node(name string, ready corev1.ConditionStatus, more ...corev1.NodeConditionType) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(ago(time.Hour))}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "because"}}
	for _, kind := range more {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Message: "really"})
	}
	return n
}

func TestNodes(t *testing.T) {
	a, b := node("a", corev1.ConditionTrue), node("b", corev1.ConditionUnknown)
	expect(t, judgeNodes([]corev1.Node{a}, "a"), check.OK, "1 Ready")
	expect(t, judgeNodes([]corev1.Node{a, b}, "a"), check.Fail, "node b is not Ready: because", "coracle node remove b")
	expect(t, judgeNodes([]corev1.Node{node("a", corev1.ConditionTrue, corev1.NodeDiskPressure)}, "a"), check.Fail, "node a has DiskPressure: really")
	expect(t, judgeNodes([]corev1.Node{a}, "me"), check.Fail, "the cluster has no node me")
	lease := func(name string, age time.Duration) coordinationv1.Lease {
		at := metav1.NewMicroTime(ago(age))
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
	}
	expect(t, judgeLeases([]corev1.Node{a}, []coordinationv1.Lease{lease("a", 5*time.Second), lease("gone", time.Hour)}, now), check.OK)
	expect(t, judgeLeases([]corev1.Node{a}, []coordinationv1.Lease{lease("a", 2*time.Minute)}, now), check.Fail, "renewed its lease 2m0s ago")
	expect(t, judgeLeases([]corev1.Node{a}, nil, now), check.Warn, "never")
	young := a
	young.CreationTimestamp = metav1.NewTime(now)
	expect(t, judgeLeases([]corev1.Node{young}, nil, now), check.OK)
}

func TestPods(t *testing.T) {
	pod := func(phase corev1.PodPhase, age time.Duration, change func(*corev1.Pod)) []corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", CreationTimestamp: metav1.NewTime(ago(age))}}
		p.Status.Phase = phase
		if change != nil {
			change(&p)
		}
		return []corev1.Pod{p}
	}
	waiting := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	tests := []struct {
		name string
		pods []corev1.Pod
		want check.Result
		text string
	}{
		{"runs", pod(corev1.PodRunning, time.Hour, nil), check.OK, "1 run"},
		{"is done", pod(corev1.PodSucceeded, time.Hour, nil), check.OK, "0 run"},
		{"is new", pod(corev1.PodPending, time.Second, waiting("ContainerCreating", "")), check.OK, ""},
		{"is old and pending", pod(corev1.PodPending, time.Hour, waiting("ContainerCreating", "")), check.Warn, "pod ns/p is Pending for 1h0m0s"},
		{"no image", pod(corev1.PodPending, time.Second, waiting("ImagePullBackOff", "no such host\nmore")), check.Warn, "container c: ImagePullBackOff: no such host"},
		{"falls", pod(corev1.PodRunning, time.Hour, func(p *corev1.Pod) {
			waiting("CrashLoopBackOff", "")(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
		}), check.Warn, "ended with code 2 (Error)"},
		{"no node", pod(corev1.PodPending, time.Second, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes"}}
		}), check.Warn, "no node takes it: 0/1 nodes"},
		{"does not end", pod(corev1.PodRunning, time.Hour, func(p *corev1.Pod) {
			at := metav1.NewTime(ago(10 * time.Minute))
			p.DeletionTimestamp = &at
		}), check.Warn, "should have ended 10m0s ago"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { expect(t, judgePods(tt.pods, now), tt.want, tt.text) })
	}
	many := make([]corev1.Pod, 30)
	for i := range many {
		many[i] = pod(corev1.PodPending, time.Hour, nil)[0]
	}
	if got := judgePods(many, now); len(got) != 11 || !strings.HasPrefix(got[10].Finding, "and 20 more like these") {
		t.Errorf("%d: %+v", len(got), got[len(got)-1])
	}
}

func TestPath(t *testing.T) {
	p := peer{node: "b", ip: netip.MustParseAddr("10.0.0.2"), gateway: netip.MustParseAddr("10.42.1.1")}
	no := errors.New("no answer in time")
	expect(t, judgePath(p, pathResult{}, 1450, config.VXLAN), check.OK)
	expect(t, judgePath(p, pathResult{small: no, full: no, name: no}, 1450, config.VXLAN), check.Fail, "pods of node b cannot be reached", "udp port 8472")
	expect(t, judgePath(p, pathResult{small: no, full: no, name: no}, 1450, config.HostGW), check.Fail, "one network segment")
	expect(t, judgePath(p, pathResult{full: no}, 1450, config.VXLAN), check.Fail, "packets of 1450 bytes do not come through", "MTU")
	expect(t, judgePath(p, pathResult{small: no, full: no}, 1450, config.VXLAN), check.OK, "pings are not answered")
	expect(t, judgeTunnels([]state.Tunnel{{Server: "a:1"}, {Server: "b:1", Error: "refused"}}), check.Fail, "no tunnel to server b:1: refused")
}

func TestEcho(t *testing.T) {
	r, err := echo4.message(0x1234, 84)
	if err != nil || len(r) != 64 {
		t.Errorf("%d bytes, %v", len(r), err)
	}
	r[0] = 0
	if !echo4.answers(r, 0x1234) || echo4.answers(r, 1) || echo4.answers(r[:4], 0x1234) {
		t.Error("an answer is not known")
	}
	if small, err := echo6.message(1, 10); err != nil || len(small) != 8 {
		t.Errorf("%d bytes, %v", len(small), err)
	}
}

func TestFailing(t *testing.T) {
	if got := failing("[+]ping ok\n[-]etcd failed: reason withheld\n[-]x failed\nreadyz check failed"); got != "etcd failed: reason withheld, x failed" {
		t.Error(got)
	}
	if got := failing("too many\nrequests"); got != "too many requests" {
		t.Error(got)
	}
	if got := short(errors.New(`Get "https://1.2.3.4/readyz": dial tcp: refused`)); got != "dial tcp: refused" {
		t.Error(got)
	}
}

// states returns the letters of a text one after the other, and then the last one for ever.
func states(letters string) func() byte {
	return func() byte {
		letter := letters[0]
		if len(letters) > 1 {
			letters = letters[1:]
		}
		return letter
	}
}

// TestStuck: a process that waits for the disk for a moment does something.
func TestStuck(t *testing.T) {
	for letters, want := range map[string]string{"S": "", "T": "it was stopped by a signal or a debugger", "DDS": "", "DT": "it was stopped by a signal or a debugger", "D": waitsForDisk} {
		if got := stuck(states(letters), func() {}); got != want {
			t.Errorf("%s: %q, want %q", letters, got, want)
		}
	}
}
