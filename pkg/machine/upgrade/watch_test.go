package upgrade

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
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
		old   bool            // the release that began the trial did not write its uptime
		ran   []time.Duration // uptimes after the trial's begin at which the watcher looks
		want  string
	}{
		{name: "starting", ran: []time.Duration{0, 59 * time.Second}},
		{name: "not ready", ran: []time.Duration{0, 61 * time.Second}, want: "it was not ready within 1m0s"},
		{name: "ready", ready: true, ran: []time.Duration{50 * time.Second, 90 * time.Second}},
		{name: "ready, not confirmed", ready: true, ran: []time.Duration{20 * time.Second, 66 * time.Second}, want: "did not confirm"},
		{name: "slow", ready: true, ran: []time.Duration{50 * time.Second, 104 * time.Second}},
		{name: "slow, not confirmed", ready: true, ran: []time.Duration{50 * time.Second, 106 * time.Second}, want: "did not confirm"},
		{name: "a new watcher of one that was ready long ago", ready: true, ran: []time.Duration{time.Hour}},
		{name: "begun by an old release", old: true, ran: []time.Duration{0, 59 * time.Second}},
		{name: "begun by an old release, not ready", old: true, ran: []time.Duration{0, 61 * time.Second}, want: "it was not ready within 1m0s"},
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
			if test.old {
				s.BeganUptime = 0
			}
			w := &watcher{place: m.place(), manager: &manager{how: initsystem.Starting}, began: began}
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

// restarts is a service manager that counts restarts.
type restarts struct {
	initsystem.Manager
	count chan struct{}
}

func (r restarts) State(context.Context, string) (initsystem.State, error) {
	return initsystem.State{Running: initsystem.Failed}, nil
}

func (r restarts) Restart(context.Context, string) error {
	r.count <- struct{}{}
	return nil
}

// TestJudge: a trial that does not work is ended by one restart; one that was confirmed since the watcher looked is never taken back.
func TestJudge(t *testing.T) {
	for _, confirmed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { testJudge(t, confirmed) })
	}
}

func testJudge(t *testing.T, confirmed bool) {
	m := newMachine(t, t.TempDir())
	m.arm(nil)
	never := 1000
	m.guard(&never, nil)
	seen := m.state()
	if confirmed {
		commit(t, m)
	}
	manager := restarts{count: make(chan struct{}, 8)}
	w := &watcher{place: m.place(), manager: manager, restarted: make(chan error, 8), uptime: uptime}
	for range 3 {
		if err := w.judge(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
		if !confirmed {
			seen = m.state()
		}
	}
	if confirmed {
		if s := m.state(); s.Phase != Committed || s.Error != "" || w.judged {
			t.Errorf("a confirmed trial is %s, %q; restarted: %t", s.Phase, s.Error, w.judged)
		}
		return
	}
	synctest.Wait()
	if s := m.state(); s.Error != unexplained || len(manager.count) != 1 || len(w.restarted) != 1 {
		t.Errorf("%q, %d restarts", s.Error, len(manager.count))
	}
}

// TestGivenUp: the watcher gives up a trial while the guard copies the datastore for it. Then it does not begin.
func TestGivenUp(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.arm(nil)
	e := &engine{place: m.place(), now: time.Now, uptime: uptime, boot: m.boot, removeTables: func(...string) error { return nil }}
	e.at = func(step string) {
		if step == "write trial" {
			s := m.state()
			s.Phase, s.Error = Cancelled, "the service does not start"
			if err := m.place().write(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := e.guard(); err != nil || m.state().Phase != Cancelled || m.read(m.binary) != "old" {
		t.Errorf("%v: the trial is %s, and %s is installed", err, m.state().Phase, m.read(m.binary))
	}
}

// TestRestoresOnce: a roll-back that is interrupted continues, and what the new version has written is in one place.
func TestRestoresOnce(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.arm(nil)
	never := 1000
	m.start(&never, nil, false)
	began := time.Now()
	for turn := 0; m.state().Phase != RolledBack; turn++ {
		func() {
			defer func() { _ = recover() }()
			moved := 0
			e := &engine{place: m.place(), now: func() time.Time { return began.Add(time.Duration(turn) * time.Hour) }, uptime: uptime, boot: m.boot,
				removeTables: func(...string) error { return nil }, at: func(step string) {
					if strings.HasPrefix(step, "put ") {
						if moved++; moved == 2 {
							panic(died{})
						}
					}
				}}
			if err := e.guard(); err != nil {
				t.Fatal(err)
			}
		}()
	}
	for _, name := range []string{"etcd-member/snap/db", "etcd-member/wal/1.wal", "pki/ca.key", "cluster.json"} {
		if got := m.read(filepath.Join(m.state().Failed, name)); got != "new" {
			t.Errorf("%s in %s is %q", name, m.state().Failed, got)
		}
	}
}

// starts is a service manager; meanwhile is called while it starts the service.
type starts struct {
	initsystem.Manager
	meanwhile func()
}

func (s starts) Start(context.Context, string) error {
	s.meanwhile()
	return nil
}

// TestSettle: what the watcher of a trial finds at its end is written down, but not about the next upgrade.
func TestSettle(t *testing.T) {
	for _, next := range []bool{false, true} {
		m := newMachine(t, t.TempDir())
		m.arm(nil)
		w := &watcher{place: m.place(), uptime: uptime}
		w.manager = starts{meanwhile: func() {
			if _, err := w.change(func(s *State) bool { s.Armed = s.Armed.Add(time.Minute); return next }); err != nil {
				t.Error(err)
			}
		}}
		if err := w.settle(t.Context(), m.state()); err != nil {
			t.Fatal(err)
		}
		if settled := !m.state().Settled.IsZero(); settled == next {
			t.Errorf("it is settled: %t; another upgrade has begun: %t", settled, next)
		}
	}
}
