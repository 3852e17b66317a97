package progress

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/golden"
)

var began = time.Date(2026, 11, 21, 10, 44, 0, 0, time.UTC)

func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// starting is a start half way through.
func starting() View {
	return View{
		Title: "coracle v1.37.1+coracle.1", Began: began, Now: at(1500),
		Front: state.Process{
			Phases: []state.Phase{
				{Name: "check machine", Began: at(0), Ended: at(10)},
				{Name: "unpack", Began: at(10), Ended: at(500)},
			},
			Children: []state.Child{
				{Name: state.ControlPlane, PID: 10, LastExit: "ended with exit status 1: etcd: the disk is on fire"},
				{Name: state.Node, PID: 11},
			},
		},
		Children: []state.Process{
			{Name: state.ControlPlane, PID: 10, Units: []lifecycle.Status{
				{Name: "etcd", State: lifecycle.Ready, Started: at(600), Ready: at(850)},
				{Name: "kube-apiserver", State: lifecycle.Starting, Started: at(850), Waiting: "/readyz, last: connection refused"},
				{Name: "kube-scheduler", State: lifecycle.Waiting, Needs: []string{"kube-apiserver"}},
				{Name: "manifests", State: lifecycle.Failed, Error: "a bad end"},
			}},
			{Name: state.Node, PID: 12, Units: []lifecycle.Status{{Name: "of an earlier process"}}},
		},
	}
}

func TestFrame(t *testing.T) {
	unpacking := View{
		Title: "coracle", Began: began, Now: at(300), Note: "42 %",
		Front: state.Process{Phases: []state.Phase{{Name: "unpack", Began: at(0)}}},
	}
	degraded := starting()
	degraded.Children[0].Units = []lifecycle.Status{
		{Name: "dns", State: lifecycle.Ready, Started: at(600), Ready: at(850), Waiting: "an upstream that answers"},
		{Name: "kubelet", State: lifecycle.Stopping},
		{Name: "kube-scheduler", State: lifecycle.Standby},
	}
	for _, c := range []struct {
		name  string
		view  View
		width int
	}{
		{"starting", starting(), 100},
		{"narrow", starting(), 40},
		{"unpacking", unpacking, 80},
		{"degraded", degraded, 80},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := Frame(c.view, c.width)
			golden.Check(t, "testdata/"+c.name+".golden", strings.ReplaceAll(strings.Join(lines, "\n"), "\x1b", "ESC")+"\n")
		})
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"abc", 2, "ab"},
		{paint(red, "abc") + "d", 2, "\x1b[31mab\x1b[0m"},
		{"mmm\x1b[1mx", 3, "mmm\x1b[1m"},
		{"a\tb", 5, "a b"},
		{"●●●", 2, "●●"},
	} {
		if got := clip(c.in, c.width); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

func TestDisplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &Display{
			Out:  &out,
			Size: func() (int, int) { return 60, 6 },
			View: starting,
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.Run(ctx, nil)
		}()
		synctest.Wait()
		d.Line("2026-11-21T10:44:00.123Z INFO  etcd: of no interest")
		d.Line("2026-11-21T10:44:00.123Z ERROR etcd: on fire")
		d.Line("panic: boom")
		d.Line("goroutine 1 [running]:")
		cancel()
		<-done
		d.End(true, "done\n")
		d.End(true, "again\n")
		d.Line("2026-11-21T10:44:00.123Z ERROR etcd: later")
		golden.Check(t, "testdata/display.golden", strings.ReplaceAll(out.String(), "\x1b", "ESC"))
	})
}

func TestDisplayRemoved(t *testing.T) {
	var out bytes.Buffer
	d := &Display{Out: &out, Size: func() (int, int) { return 60, 30 }, View: func() View { return View{Title: "x"} }}
	d.draw()
	d.End(false, "bye\n")
	if !strings.HasSuffix(out.String(), "\x1b[2A\r\x1b[Jbye\n") || d.draw() {
		t.Errorf("%q", out.String())
	}
}

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	(&Plain{W: &out}).Line("2026-11-21T10:44:00.123Z ERROR x")
	(&Plain{W: &out, Colour: true}).Line("2026-11-21T10:44:00.123Z ERROR x")
	want := "2026-11-21T10:44:00.123Z ERROR x\n2026-11-21T10:44:00.123Z \x1b[31mERROR\x1b[0m x\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}
