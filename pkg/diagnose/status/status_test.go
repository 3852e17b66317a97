package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
	"github.com/coracle-dev/coracle/test/golden"
)

var start = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func unit(name string, s lifecycle.State, started, ready float64, needs ...string) lifecycle.Status {
	u := lifecycle.Status{Name: name, State: s, Needs: needs, Added: start}
	if started > 0 {
		u.Started = at(started)
	}
	if ready > 0 {
		u.Ready = at(ready)
	}
	return u
}

// tell are the state files of a server, as the given functions change them.
func tell(change func(front, control, node *state.Process)) []state.Process {
	front := state.Process{Name: state.Front, PID: 100, Version: "v1.37.1+coracle.1", Started: start, Ready: at(3.2),
		Children: []state.Child{
			{Name: state.ControlPlane, PID: 101, State: "ready", Started: at(0.1), Ready: at(2.4)},
			{Name: state.Node, PID: 102, State: "ready", Started: at(0.1), Ready: at(3.2)},
		}}
	control := state.Process{Name: state.ControlPlane, PID: 101, Started: at(0.12), Ready: at(2.4), Units: []lifecycle.Status{
		unit("etcd", lifecycle.Ready, 0.2, 0.5), unit("kube-apiserver", lifecycle.Ready, 0.5, 2.3, "etcd"),
	}}
	node := state.Process{Name: state.Node, PID: 102, Started: at(0.12), Ready: at(3.2), Units: []lifecycle.Status{
		unit("containerd", lifecycle.Ready, 0.2, 0.4), unit("kubelet", lifecycle.Ready, 0.4, 3.1, "containerd"),
	}}
	if change != nil {
		change(&front, &control, &node)
	}
	return []state.Process{front, control, node}
}

var goodNode = &Node{Name: "alpha", Ready: true, Version: "v1.37.1+coracle.1", Addresses: []string{"192.0.2.7"}}

var busyNode = &Node{Name: "alpha", Ready: true, Version: "v1.37.1+coracle.1", Addresses: []string{"192.0.2.7"},
	Usage: &Usage{MilliCPU: 234, MilliCPUs: 2000, Memory: 384 << 20, Allocatable: 24 << 30, Measured: start}}

// reports are those of add-ons that list texts.
var reports = func() (all []state.Report) {
	for _, key := range []string{"one", "two", "three", "four", "none"} {
		all = append(all, state.NewReport(key, state.EachNode, strings.ToUpper(key), func(texts []string) []string { return texts }, nil))
	}
	return append(all, clusterdns.Report())
}()

func TestReport(t *testing.T) {
	tests := []struct {
		name   string
		told   []state.Process
		node   *Node
		alive  func(state.Process) bool
		health Health

		disable []string
	}{
		{name: "stopped", health: Stopped},
		{name: "ready", told: tell(nil), node: goodNode, health: Ready},
		{name: "usage", told: tell(nil), node: busyNode, health: Ready},
		{name: "left-out", told: tell(nil), node: goodNode, health: Ready, disable: []string{"dns", "servicelb"}},
		{name: "details", node: goodNode, health: Ready, told: tell(func(_, control, node *state.Process) {
			control.Details = map[string]json.RawMessage{state.ManifestsDetail: json.RawMessage(
				`[{"file":"dns.yaml","state":"applied","objects":4},{"file":"mine.yaml","state":"failed","error":"line 3: unknown kind"}]`),
				state.EtcdDetail: json.RawMessage(`[{"kind":"NOSPACE","member":"alpha","advice":"delete what is not needed"}]`)}
			node.Details = map[string]json.RawMessage{
				"dns": json.RawMessage(`{"listen":["10.42.0.1:53"],"upstreams":["192.0.2.53"],"source":"cluster","loaded":"2026-11-21T10:00:30Z","error":"Corefile, line 2: unknown directive"}`),
				state.BalancerDetail: json.RawMessage(`[{"address":"192.0.2.8:6443","connections":4},{"address":"192.0.2.7:6443","own":true,` +
					`"problem":"connect: connection refused","since":"2026-11-21T10:00:50Z"},{"address":"lb:6443","fallback":true}]`),
				state.TunnelsDetail: json.RawMessage(`[{"server":"192.0.2.8:6443","since":"2026-11-21T10:00:05Z"},{"server":"192.0.2.9:6443","error":"no route to host"}]`),
				"images":            json.RawMessage(`[{"file":"a.tar"},{"file":"b.tar","error":"importing b.tar: the file is cut short"}]`)}
		})},
		{name: "add-ons", node: goodNode, health: Ready, told: tell(func(_, control, node *state.Process) {
			control.Details = map[string]json.RawMessage{"one": json.RawMessage(`["first","second"]`)}
			node.Details = map[string]json.RawMessage{"two": json.RawMessage(`["only"]`), "three": json.RawMessage(`[]`), "four": json.RawMessage(`{"of":"another version"}`)}
		})},
		{name: "standby", node: goodNode, health: Ready, told: tell(func(_, control, _ *state.Process) {
			leadership := unit("leadership", lifecycle.Standby, 2.3, 0, "kube-apiserver")
			leadership.Waiting = "beta leads"
			control.Units = append(control.Units, leadership, unit("kube-scheduler", lifecycle.Standby, 0, 0, "leadership"))
		})},
		{name: "starting", health: Starting, told: tell(func(front, control, _ *state.Process) {
			front.Ready = time.Time{}
			front.Children[0].State, front.Children[0].Ready = "starting", time.Time{}
			control.Units[1].State, control.Units[1].Ready = lifecycle.Starting, time.Time{}
			control.Units[1].Waiting = "/readyz, last: connection refused"
			control.Units = append(control.Units, unit("kube-scheduler", lifecycle.Waiting, 0, 0, "kube-apiserver"))
		})},
		{name: "backoff", health: Degraded, node: goodNode, told: tell(func(front, _, _ *state.Process) {
			front.Children[1] = state.Child{Name: state.Node, State: "backoff", Restarts: 3, Started: at(50),
				LastExit: "ended with exit status 1: kubelet: no space left on device", LastExitAt: at(60)}
		})},
		{name: "node-not-ready", health: Degraded, told: tell(nil), node: &Node{
			Name: "alpha", Version: "v1.37.1", Addresses: []string{"192.0.2.7", "2001:db8::7"}, Message: "container runtime is down", Cordoned: true}},
		{name: "refused", health: Stopped, alive: func(state.Process) bool { return false }, told: tell(func(front, _, _ *state.Process) {
			front.Children = nil
			front.Phases = []state.Phase{{Name: "join", Began: front.Started, Waiting: "node edge was removed from the cluster"}}
		})},
		{name: "crashed", health: Stopped, alive: func(state.Process) bool { return false }, told: tell(func(front, _, _ *state.Process) {
			front.Children[0].LastExit, front.Children[0].LastExitAt = "was killed (SIGKILL)", at(10)
		})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dirs := paths.Dirs{Data: "/nowhere", Run: t.TempDir()}
			for _, p := range tt.told {
				if err := state.Write(dirs, p); err != nil {
					t.Fatal(err)
				}
			}
			from := Sources{Dirs: dirs, Config: config.Config{Role: config.Server, Disable: tt.disable},
				usage: func(pid int) (usage, error) { return usage{memory: int64(pid) << 20, cpu: float64(pid) / 10}, nil },
				alive: func(state.Process) bool { return true },
			}
			if tt.alive != nil {
				from.alive = tt.alive
			}
			if tt.node != nil {
				from.Node = func(context.Context) (*Node, error) { return tt.node, nil }
			}
			r, err := Collect(t.Context(), from)
			if err != nil {
				t.Fatal(err)
			}
			if r.Health != tt.health {
				t.Errorf("health %s, want %s", r.Health, tt.health)
			}
			var text bytes.Buffer
			if err := r.Text(&text, at(125), reports); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/"+tt.name+".txt", text.Bytes())
			data, _ := json.MarshalIndent(r, "", "  ")
			golden.Check(t, "testdata/"+tt.name+".json", append(data, '\n'))
		})
	}
}

func TestAPIThatDoesNotAnswerIsAReason(t *testing.T) {
	r := Report{Health: Ready, Processes: []Process{{Name: state.Front}}}
	r.addNode(t.Context(), func(context.Context) (*Node, error) { return nil, errors.New("connection refused") })
	if r.Health != Degraded || len(r.Reasons) != 1 {
		t.Errorf("health %s for %q", r.Health, r.Reasons)
	}
}

// TestPatienceWithAPI: a busy machine is not called degraded, and one that is already is not waited for.
func TestPatienceWithAPI(t *testing.T) {
	for health, want := range map[Health]time.Duration{Ready: nodeTimeout, Starting: shortTimeout, Degraded: shortTimeout} {
		r := Report{Health: health, Processes: make([]Process, 1)}
		r.addNode(t.Context(), func(ctx context.Context) (*Node, error) {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > want || time.Until(end) < want-shortTimeout/2 {
				t.Errorf("%s: the API has until %s, not %s", health, end, want)
			}
			return goodNode, nil
		})
	}
}

// TestReasonsDoNotHeal: only what is ready can be degraded.
func TestReasonsDoNotHeal(t *testing.T) {
	for _, health := range []Health{Starting, Stopped} {
		r := Report{Health: health, Processes: []Process{{Name: state.Front}}}
		if r.add("a Service does not answer"); r.Health != health || len(r.Reasons) != 1 {
			t.Errorf("%s has become %s for %q", health, r.Health, r.Reasons)
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	u, err := readUsage(os.Getpid())
	if err != nil || u.memory == 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestDirSize(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b"))
	size := dirSize(dir, time.Now().Add(time.Minute))
	if size < 1<<16 || size > 1<<17 {
		t.Errorf("%d bytes, want a little over 64 KiB: a file with two names counts once", size)
	}
	if size := dirSize(dir, time.Now().Add(-time.Second)); size != 0 {
		t.Errorf("%d bytes after the time was up", size)
	}
}
