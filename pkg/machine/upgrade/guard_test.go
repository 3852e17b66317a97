package upgrade

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// machine is a service's files. The text of its executable and of its datastore is the version that wrote them.
type machine struct {
	t      *testing.T
	dirs   paths.Dirs
	binary string
	boot   string
	// removed are the nft tables that guards have removed.
	removed []string
}

func newMachine(t *testing.T, dir string) *machine {
	t.Helper()
	m := &machine{t: t, boot: "first", binary: filepath.Join(dir, "bin", "coracle")}
	m.dirs = paths.Dirs{Data: filepath.Join(dir, "data"), Run: filepath.Join(dir, "run")}
	m.write(m.binary, "old")
	m.write(filepath.Join(m.dirs.Etcd(), "member", "wal", "1.wal"), "old")
	m.write(filepath.Join(m.dirs.Etcd(), "member", "snap", "db"), "old")
	m.write(filepath.Join(m.dirs.PKI(), "ca.key"), "old")
	m.write(m.dirs.ServerCluster(), "old")
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	_ = os.Remove(path) // not through another name of it
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

func (m *machine) place() place { return place(m.dirs.Data) }

// arm is what the command does last.
func (m *machine) arm(change func(*State)) {
	m.t.Helper()
	m.write(next(m.binary), "new")
	for _, to := range []string{back(m.binary), m.place().trial(binaryName)} {
		if err := linkOrCopy(m.binary, to); err != nil {
			m.t.Fatal(err)
		}
	}
	from, _ := release.SumFile(m.binary)
	to, _ := release.SumFile(next(m.binary))
	s := State{Phase: Armed, Service: "coracle", Binary: m.binary, Dirs: m.dirs, Datastore: true, Boot: m.boot, Armed: time.Now(), ArmedUptime: uptime(),
		From: Build{"v1.37.1+coracle.1", from}, To: Build{"v1.37.1+coracle.2", to}}
	if change != nil {
		change(&s)
	}
	if err := m.place().write(s); err != nil {
		m.t.Fatal(err)
	}
}

// died is what a step panics with that is a process' last.
type died struct{}

// guard runs the guard, which dies at the step that left says: 0 for the next one. It returns whether it lived.
func (m *machine) guard(left *int, steps *[]string) (lived bool) {
	m.t.Helper()
	e := &engine{place: m.place(), now: time.Now, uptime: uptime, boot: m.boot, at: func(step string) {
		if steps != nil {
			*steps = append(*steps, step)
		}
		if *left--; *left == -1 {
			panic(died{})
		}
	}, removeTables: func(names ...string) error {
		if m.state().Phase == Trial && m.read(m.binary) != "old" {
			m.t.Error("tables are removed after the executable was swapped")
		}
		m.removed = append(m.removed, names...)
		return nil
	}}
	defer func() {
		if p := recover(); p != nil && p != (died{}) {
			panic(p)
		}
	}()
	if err := e.guard(); err != nil {
		m.t.Fatalf("the guard: %v", err)
	}
	return true
}

// start is what a service manager does until the service runs; power is lost where the guard dies if so said.
func (m *machine) start(left *int, steps *[]string, powerLoss bool) (running string) {
	for !m.guard(left, steps) {
		if powerLoss {
			m.boot += "+"
		}
	}
	running = m.read(m.binary)
	for _, path := range []string{filepath.Join(m.dirs.Etcd(), "member", "snap", "db"), filepath.Join(m.dirs.Etcd(), "member", "wal", "1.wal"), filepath.Join(m.dirs.PKI(), "ca.key"), m.dirs.ServerCluster()} {
		if m.read(path) == "" {
			m.t.Errorf("the %s version runs without %s", running, path)
		}
	}
	for _, p := range parts(m.dirs) { // each version may change everything
		_ = filepath.Walk(p.path, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() {
				if had := m.read(path); had != running && running == "old" {
					m.t.Errorf("the old version runs with %s of the %s one", path, had)
				}
				m.write(path, running)
			}
			return err
		})
	}
	return running
}

func (m *machine) state() State {
	m.t.Helper()
	s, _, err := Read(m.dirs.Data)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// check says what is not as it has to be after a trial, whatever came of it.
func (m *machine) check() {
	m.t.Helper()
	s := m.state()
	running := m.read(m.binary)
	if s.Pending() {
		m.t.Errorf("the trial is still %s", s.Phase)
	}
	if want := map[Phase]string{Committed: "new", RolledBack: "old", Cancelled: "old"}[s.Phase]; want != running {
		m.t.Errorf("%s, and the %s version is installed", s.Phase, running)
	}
	for _, path := range []string{next(m.binary), back(m.binary), m.place().trial()} {
		if paths.Exists(path) {
			m.t.Errorf("%s is left", path)
		}
	}
	if kept := m.read(m.place().previous(binaryName)); s.Phase == Committed && kept != "old" {
		m.t.Errorf("the version before is %q", kept)
	}
	if s.Phase != Committed && paths.Exists(m.place().previous()) {
		m.t.Error("there is a version before though nothing was committed")
	}
}

// TestCrashes lets the guard die before each of its steps, killed or with the machine, while it begins a trial and while
// it ends one. Whatever happens, a version runs whose datastore is its own, and nobody has to do anything.
func TestCrashes(t *testing.T) {
	for _, works := range []bool{true, false} {
		for _, powerLoss := range []bool{false, true} {
			for at := 0; ; at++ {
				m := newMachine(t, t.TempDir())
				m.arm(nil)
				left, steps := at, []string(nil)
				running := m.start(&left, &steps, powerLoss)
				if running == "new" && works {
					commit(t, m)
				}
				if powerLoss {
					m.boot += "+"
				}
				m.start(&left, &steps, powerLoss) // if it has not committed: it died, or the watcher had enough of it
				m.start(new(int), nil, false)
				m.check()
				if t.Failed() {
					t.Fatalf("the new version works: %v; power was lost: %v; died at %q of %q", works, powerLoss, steps[min(at, len(steps)-1)], steps)
				}
				if left >= 0 {
					t.Logf("works %v, power loss %v: %d points: %s", works, powerLoss, at, strings.Join(steps, ", "))
					break
				}
			}
		}
	}
}

// commit is what the new version does once it has stayed ready.
func commit(t *testing.T, m *machine) {
	t.Helper()
	s := m.state()
	if _, _, err := confirm(t.Context(), s, s.To.SHA256, func() string { return "" }); err != nil {
		t.Fatal(err)
	}
}

// TestConfirmTooLate: a version becomes ready after the watcher has judged its trial. That judgement stays.
func TestConfirmTooLate(t *testing.T) {
	for name, judge := range map[string]func(*State){
		"given up":    func(s *State) { s.Error = "it did not become ready in time" },
		"rolled back": func(s *State) { s.Phase = RolledBack },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, t.TempDir())
			m.arm(nil)
			never := 1000
			m.guard(&never, nil)
			onTrial := m.state()
			judged := onTrial
			judge(&judged)
			if err := m.place().write(judged); err != nil {
				t.Fatal(err)
			}
			if _, _, err := confirm(t.Context(), onTrial, onTrial.To.SHA256, func() string { return "" }); err != nil {
				t.Fatal(err)
			}
			if s := m.state(); s.Phase != judged.Phase || s.Error != judged.Error {
				t.Errorf("%s, %q", s.Phase, s.Error)
			}
		})
	}
}

// TestConfirmByAnother: only the version that is on trial can confirm it, not the old one that somebody starts by hand.
func TestConfirmByAnother(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.arm(nil)
	never := 1000
	m.guard(&never, nil)
	s := m.state()
	if _, ok, err := confirm(t.Context(), s, s.From.SHA256, func() string { return "" }); ok || err != nil || m.state().Phase != Trial {
		t.Errorf("confirmed: %t, %v, %s", ok, err, m.state().Phase)
	}
}

// TestHold: the new version is asked whether it stayed well after the hold time, not before.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, t.TempDir())
		m.arm(func(s *State) { s.Hold = time.Minute })
		never := 1000
		m.guard(&never, nil)
		began, asked := time.Now(), time.Time{}
		well := func() string { asked = time.Now(); return "" }
		if s, ok, err := confirm(t.Context(), m.state(), m.state().To.SHA256, well); !ok || err != nil || s.Phase != Committed {
			t.Errorf("confirmed: %t, %v, %s", ok, err, s.Phase)
		}
		if held := asked.Sub(began); held < time.Minute {
			t.Errorf("held for %v", held)
		}
	})
}

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name    string
		arm     func(m *machine, s *State)
		trial   func(m *machine) // between begin and the next start; nil is a version that works
		want    Phase
		runs    string
		data    string // in the datastore at the end
		because string
	}{
		{name: "works", want: Committed, runs: "new", data: "new"},
		{name: "dies", trial: func(*machine) {}, want: RolledBack, runs: "old", data: "old", because: "ended before it could say why"},
		{name: "machine restarted", trial: func(m *machine) { m.boot = "second" }, want: RolledBack, runs: "old", data: "old", because: "machine was restarted"},
		{name: "another server joined", trial: func(m *machine) { m.write(peersMark(m.dirs), "") },
			want: RolledBack, runs: "old", data: "new", because: "ended before"},
		{name: "another server joined before", arm: func(m *machine, _ *State) { m.write(peersMark(m.dirs), "") },
			trial: func(*machine) {}, want: RolledBack, runs: "old", data: "new"},
		{name: "external datastore", arm: func(_ *machine, s *State) { s.Datastore, s.Kept = false, "elsewhere" },
			trial: func(*machine) {}, want: RolledBack, runs: "old", data: "new"},
		{name: "armed in another boot", arm: func(_ *machine, s *State) { s.Boot = "zeroth" }, want: Cancelled, runs: "old", data: "old", because: "interrupted before"},
		{name: "armed long ago", arm: func(_ *machine, s *State) { s.ArmedUptime -= time.Hour }, want: Cancelled, runs: "old", data: "old", because: "interrupted before"},
		{name: "armed by a clock that was set back since", arm: func(_ *machine, s *State) { s.Armed = s.Armed.Add(time.Hour) }, want: Committed, runs: "new", data: "new"},
		{name: "armed by a clock that was set forward since", arm: func(_ *machine, s *State) { s.Armed = time.Time{} }, want: Committed, runs: "new", data: "new"},
		{name: "armed some minutes ago", arm: func(_ *machine, s *State) { s.ArmedUptime -= fresh - time.Minute }, want: Committed, runs: "new", data: "new"},
		{name: "old data wanted where another server joined", arm: func(m *machine, s *State) { s.OldData = true; m.write(peersMark(m.dirs), "") },
			want: Cancelled, runs: "old", data: "old", because: "cannot be restored"},
		{name: "new file changed", arm: func(m *machine, _ *State) { m.write(next(m.binary), "other") }, want: Cancelled, runs: "old", data: "old", because: "not as it was"},
		{name: "old file removed", trial: func(m *machine) { _ = os.Remove(back(m.binary)) }, want: RolledBack, runs: "old", data: "old"},
		{name: "old data wanted", arm: func(m *machine, s *State) {
			s.OldData = true
			m.write(filepath.Join(m.place().previous(dataName), "pki", "ca.key"), "older")
		}, trial: func(*machine) {}, want: RolledBack, runs: "old", data: "old"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, t.TempDir())
			m.arm(func(s *State) {
				if c.arm != nil {
					c.arm(m, s)
				}
			})
			never := 1000
			m.guard(&never, nil)
			if m.read(m.binary) == "new" {
				for _, p := range []string{filepath.Join(m.dirs.Etcd(), "member", "snap", "db"), m.dirs.Token()} {
					m.write(p, "new")
				}
				if c.trial == nil {
					commit(t, m)
				} else {
					c.trial(m)
				}
			}
			m.guard(&never, nil)
			s := m.state()
			if s.Phase != c.want || !strings.Contains(s.Error, c.because) {
				t.Errorf("%s: %s", s.Phase, s.Error)
			}
			if got := m.read(m.binary); got != c.runs {
				t.Errorf("the %s version is installed", got)
			}
			if got := m.read(filepath.Join(m.dirs.Etcd(), "member", "snap", "db")); got != c.data {
				t.Errorf("the data is %q", got)
			}
			if paths.Exists(m.dirs.Token()) != (c.data == "new") {
				t.Errorf("the token that only the new version made: %v", paths.Exists(m.dirs.Token()))
			}
			if given := m.read(filepath.Join(s.Failed, "etcd-member", "snap", "db")); c.want == RolledBack && c.data == "old" && given != "new" {
				t.Errorf("the data that was given up is %q", given)
			}
		})
	}
}

// imitateGateway runs a program that looks like the gateway's process, which has its directory as the root or the working directory.
func imitateGateway(t *testing.T, dirs paths.Dirs) (ended func() bool) {
	t.Helper()
	files := string(gateway.Dir(dirs.Gateway()).Files())
	script := filepath.Join(files, gateway.Program)
	if err := errors.Join(os.MkdirAll(files, 0o755), os.WriteFile(script, []byte("read line\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", gateway.Program, dirs.Gateway(), "{}")
	cmd.Dir = files
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return func() bool {
		p, err := process.Find(cmd.Process.Pid)
		return err != nil || p.Ended()
	}
}

// TestThingsOfNewerVersion: an older version does not find nft tables that it may not know, nor links of the control plane's user, nor a gateway that
// has its ports.
func TestThingsOfNewerVersion(t *testing.T) {
	both := []string{"inet coracle-wire", "bridge coracle-ports"}
	for name, c := range map[string]struct {
		change func(*State)
		want   []string
	}{
		"upgrade": {func(*State) {}, nil},
		"rollback": {func(s *State) {
			s.Back, s.From.Version, s.To.Version = true, "v1.37.1+coracle.dev", "v1.37.1+coracle.dev"
		}, both},
		"downgrade": {func(s *State) { s.From.Version, s.To.Version = s.To.Version, s.From.Version }, both},
	} {
		m := newMachine(t, t.TempDir())
		m.arm(c.change)
		link := m.dirs.OwnNodes()
		plant := func() {
			m.write(m.dirs.DataVersion(), "v1.37.1+coracle.2")
			if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink("/etc/passwd", link), os.Lchown(link, 60971, 60971)); err != nil {
				t.Fatal(err)
			}
		}
		plant()
		gatewayEnded := imitateGateway(t, m.dirs)
		never := 1000
		m.guard(&never, nil)
		if gatewayEnded() != (c.want != nil) {
			t.Errorf("%s: the gateway has ended: %t", name, gatewayEnded())
		}
		if m.read(m.binary) != "new" || !slices.Equal(m.removed, c.want) || paths.Exists(m.dirs.DataVersion()) != (c.want == nil) {
			t.Errorf("%s: the %s version runs, and the tables %q were removed; record of the version: %t", name, m.read(m.binary), m.removed, paths.Exists(m.dirs.DataVersion()))
		}
		if _, err := os.Lstat(link); err == nil {
			t.Errorf("%s: the link of the control plane's user is there", name)
		}
		plant()
		gatewayEnded = imitateGateway(t, m.dirs)
		m.guard(&never, nil)
		if !gatewayEnded() {
			t.Errorf("%s failed: the gateway goes on", name)
		}
		if _, err := os.Lstat(link); err == nil {
			t.Errorf("%s failed: the link of the control plane's user is there", name)
		}
		if want := append(c.want, both...); m.read(m.binary) != "old" || !slices.Equal(m.removed, want) {
			t.Errorf("%s failed: the %s version runs, and the tables %q were removed", name, m.read(m.binary), m.removed)
		}
	}
}

// TestOneFailure: of several datastores that were given up, the last is kept.
func TestOneFailure(t *testing.T) {
	m := newMachine(t, t.TempDir())
	never := 1000
	for i := range 3 {
		m.arm(nil)
		s := m.state()
		m.guard(&never, nil)
		e := &engine{place: m.place(), at: func(string) {}, now: func() time.Time { return s.Armed.Add(time.Duration(i) * time.Minute) }, uptime: uptime, boot: m.boot,
			removeTables: func(...string) error { return nil }}
		if err := e.guard(); err != nil {
			t.Fatal(err)
		}
	}
	found, _ := filepath.Glob(m.place().join(failedPrefix + "*"))
	if !slices.Equal(found, []string{m.state().Failed}) {
		t.Errorf("kept %q", found)
	}
}

// TestInterruptedPreparation: what a command that died has left of a trial is not taken for the version before.
func TestInterruptedPreparation(t *testing.T) {
	m := newMachine(t, t.TempDir())
	never := 1000
	m.arm(nil)
	m.guard(&never, nil)
	commit(t, m)
	if got := m.read(m.place().previous(binaryName)); got != "old" {
		t.Fatalf("the version before is %q", got)
	}
	u := upgrading{place: m.place(), target: Target{Binary: m.binary, Dirs: m.dirs}}
	s := m.state()
	if err := u.keepOld(s); err != nil {
		t.Fatal(err)
	}
	m.guard(&never, nil)
	if got := m.read(m.place().previous(binaryName)); got != "old" {
		t.Errorf("the version before is %q", got)
	}
	if paths.Exists(m.place().trial()) || paths.Exists(back(m.binary)) {
		t.Error("something is left of the trial")
	}
}

// TestOldExecutableMissing: a roll-back is not over before the old executable is back in place.
func TestOldExecutableMissing(t *testing.T) {
	m := newMachine(t, t.TempDir())
	m.arm(nil)
	never := 1000
	m.guard(&never, nil)
	for _, old := range []string{back(m.binary), m.place().trial(binaryName)} {
		if err := os.Remove(old); err != nil {
			t.Fatal(err)
		}
	}
	e := &engine{place: m.place(), at: func(string) {}, now: time.Now, uptime: uptime, boot: m.boot,
		removeTables: func(...string) error { return nil }}
	if err := e.guard(); err == nil || m.state().Phase != Restoring {
		t.Errorf("the trial is %s, and the error %v", m.state().Phase, err)
	}
	m.write(m.place().trial(binaryName), "old")
	if err := e.guard(); err != nil || m.state().Phase != RolledBack || m.read(m.binary) != "old" {
		t.Errorf("the trial is %s, the executable %q, and the error %v", m.state().Phase, m.read(m.binary), err)
	}
}
