package upgrade

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
)

// TestFault: a trial is judged by how long the machine has run, whatever its clock says.
func TestFault(t *testing.T) {
	const month = 30 * 24 * time.Hour
	for _, test := range []struct {
		name  string
		clock time.Duration // what the clock was set forward by since the trial began
		ready bool
		ran   []time.Duration // uptimes after the trial's begin at which the watcher looks
		want  string
	}{
		{name: "starting", ran: []time.Duration{0, 59 * time.Second}},
		{name: "not ready", ran: []time.Duration{0, 61 * time.Second}, want: "it was not ready within 1m0s"},
		{name: "ready", ready: true, ran: []time.Duration{50 * time.Second, 90 * time.Second}},
		{name: "ready, not confirmed", ready: true, ran: []time.Duration{50 * time.Second, 100 * time.Second}, want: "did not confirm"},
		{name: "a new watcher of one that was ready long ago", ready: true, ran: []time.Duration{time.Hour}},
		{name: "starting, and the clock is set to a year later", clock: 12 * month, ran: []time.Duration{0, 59 * time.Second}},
		{name: "starting, and the clock is set to a day before", clock: -24 * time.Hour, ran: []time.Duration{0, 59 * time.Second}},
		{name: "ready, and the clock is set to a year later", clock: 13 * month, ready: true, ran: []time.Duration{0, 40 * time.Second}},
		{name: "ready, and the clock is set to 1970", clock: -600 * month, ready: true, ran: []time.Duration{0, 40 * time.Second}},
		{name: "not ready, and the clock is set to a day before", clock: -24 * time.Hour, ran: []time.Duration{61 * time.Second}, want: "not ready within"},
		{name: "not confirmed, and the clock is set to a day before", clock: -24 * time.Hour, ready: true, ran: []time.Duration{0, 61 * time.Second}, want: "did not confirm"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t, t.TempDir())
			began := uptime()
			s := State{Phase: Trial, Dirs: m.dirs, Service: "coracle", Timeout: time.Minute, Hold: 30 * time.Second,
				Began: time.Now().Add(-test.clock), BeganUptime: began}
			front := state.Process{Name: state.Front, PID: 1, Started: s.Began.Add(time.Second)}
			if test.ready {
				front.Ready = s.Began.Add(2 * time.Second)
			}
			if err := os.MkdirAll(m.dirs.Run, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := state.Write(m.dirs, front); err != nil {
				t.Fatal(err)
			}
			w := &watcher{place: m.place(), manager: &manager{how: initsystem.Starting}}
			got := ""
			for _, ran := range test.ran {
				w.uptime = func() time.Duration { return began + ran }
				got = w.fault(t.Context(), s)
			}
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("it is said that %q, want %q", got, test.want)
			}
		})
	}
}

// TestForget: what the version before has said of itself is not taken for the new one's.
func TestForget(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.arm(nil)
	m.write(m.dirs.State(state.Front), `{"ready":"2126-01-01T00:00:00Z"}`)
	never := 1000
	m.guard(&never, nil)
	if _, ok, _ := state.Read(m.dirs, state.Front); ok || m.state().Phase != Trial {
		t.Errorf("the front's state is there: %t; the trial is %s", ok, m.state().Phase)
	}
}
