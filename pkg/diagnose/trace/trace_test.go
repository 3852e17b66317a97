package trace

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/golden"
)

var zero = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return zero.Add(time.Duration(seconds * float64(time.Second)))
}

func unit(name string, added, started, ready float64, needs ...string) lifecycle.Status {
	return lifecycle.Status{Name: name, Added: at(added), Started: at(started), Ready: at(ready), Needs: needs}
}

func sample() (front state.Process, children []state.Process) {
	front = state.Process{Name: state.Front, Version: "v1.37.1+coracle.1", Started: zero, Ready: at(3.1),
		Phases: []state.Phase{
			{Name: "unpack", Began: at(0.01), Ended: at(0.48)},
			{Name: "pki", Began: at(0.48), Ended: at(0.53)},
		},
		Children: []state.Child{
			{Name: state.ControlPlane, Started: at(0.54), Ready: at(2.35)},
			{Name: state.Node, Started: at(0.54), Ready: at(3.1)},
		}}
	children = []state.Process{
		{Name: state.ControlPlane, Started: at(0.61), Units: []lifecycle.Status{
			unit("etcd", 0.62, 0.62, 0.83),
			unit("kube-apiserver", 0.62, 0.83, 2.31, "etcd"),
			unit("kube-scheduler", 0.62, 2.31, 2.34, "kube-apiserver"),
		}},
		{Name: state.Node, Started: at(0.6), Units: []lifecycle.Status{
			unit("containerd", 0.62, 0.621, 0.9),
			unit("kubelet", 0.62, 2.32, 2.7, "containerd", "api"),
			unit("dns", 0.62, 2.9, 3.1, "node"),
		}},
	}
	return front, children
}

func TestRendering(t *testing.T) {
	tests := []struct {
		name   string
		change func(front *state.Process, children []state.Process)
		width  int
	}{
		{name: "start", width: 100},
		{name: "narrow", width: 60},
		{name: "unfinished", width: 120, change: func(front *state.Process, children []state.Process) {
			front.Ready, front.Children[0].Ready = time.Time{}, time.Time{}
			children[0].Units[1] = unit("kube-apiserver", 0.62, 0.83, 0, "etcd")
			children[0].Units[2] = unit("kube-scheduler", 0.62, 0, 0, "kube-apiserver")
		}},
		{name: "standby", width: 100, change: func(_ *state.Process, children []state.Process) {
			children[0].Units[2].Standby, children[0].Units[2].Started, children[0].Units[2].Ready = at(2.32), at(9000), at(9001)
		}},
		{name: "restarted", width: 100, change: func(front *state.Process, children []state.Process) {
			front.Children[1].Restarts, front.Children[1].Started, front.Children[1].Ready = 2, at(4000), at(4001.5)
			children[1] = state.Process{Name: state.Node, Started: at(4000.1), Units: []lifecycle.Status{
				unit("containerd", 4000.1, 4000.1, 4000.4), {Name: "kubelet <1>", Added: at(4000.1), Started: at(4000.4),
					Ended: at(4001.5), State: lifecycle.Failed, Error: "no space"},
			}}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			front, children := sample()
			if tt.change != nil {
				tt.change(&front, children)
			}
			tr := Make(front, children, at(5))
			var text, svg bytes.Buffer
			if err := errors.Join(tr.Text(&text, tt.width), tr.SVG(&svg)); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text.String()) {
				if n := utf8.RuneCountInString(line) - 1; n > tt.width && !strings.Contains(line, "failed") {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			golden.Check(t, "testdata/"+tt.name+".txt", text.Bytes())
			golden.Check(t, "testdata/"+tt.name+".svg", svg.Bytes())
			data, _ := json.MarshalIndent(tr, "", "  ")
			golden.Check(t, "testdata/"+tt.name+".json", append(data, '\n'))
			wellFormed(t, &svg)
		})
	}
}

func TestReadWithoutStart(t *testing.T) {
	if _, err := Read(paths.Dirs{Run: t.TempDir()}, zero); err == nil {
		t.Error("no error for a machine on which nothing was started")
	}
}

func TestEmptyStart(t *testing.T) {
	tr := Make(state.Process{Started: zero}, nil, zero)
	if err := errors.Join(tr.Text(io.Discard, 80), tr.SVG(io.Discard)); err != nil {
		t.Error(err)
	}
}

func wellFormed(t *testing.T, r io.Reader) {
	t.Helper()
	for d := xml.NewDecoder(r); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
