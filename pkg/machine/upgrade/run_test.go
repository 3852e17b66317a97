package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/machine/initsystem"
	"github.com/coracle-dev/coracle/pkg/machine/release"
	"github.com/coracle-dev/coracle/test/executable"
)

// marker separates the test's own executable from what it is to be, where it stands in for a coracle.
const marker = "\nTHIS IS A STAND-IN: "

// TestMain is a coracle, as far as an upgrade asks it something, if the executable ends with a marker.
func TestMain(m *testing.M) {
	exe, _ := os.Executable()
	if version, _, ok := standin(exe); ok {
		switch {
		case len(os.Args) > 1 && os.Args[1] == "version":
			_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"version": version})
		case len(os.Args) > 1 && os.Args[1] == UnpackCommand:
			if strings.Contains(exe, "short") || strings.Contains(version, "coracle.13") {
				fmt.Fprintf(os.Stderr, "coracle: the executable %s is damaged or was not copied whole\n", exe)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// standin is what an executable stands in for, and how that one behaves as a server.
func standin(path string) (version, behaviour string, ok bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", "", false
	}
	tail := string(data[max(0, len(data)-200):])
	_, text, ok := strings.Cut(tail, marker)
	version, behaviour, _ = strings.Cut(text, " ")
	return version, behaviour, ok
}

func makeStandin(t *testing.T, path, version, behaviour string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := executable.Write(path, append(data, marker+version+" "+behaviour...)); err != nil {
		t.Fatal(err)
	}
}

// manager is a service manager with one service, which behaves as its executable says.
type manager struct {
	initsystem.Manager
	t       *testing.T
	m       *machine
	running context.CancelFunc
	wait    sync.WaitGroup
	mu      sync.Mutex
	how     initsystem.Running
}

func (f *manager) State(context.Context, string) (initsystem.State, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return initsystem.State{Running: f.how}, nil
}

func (f *manager) Restart(ctx context.Context, name string) error {
	f.mu.Lock()
	if f.running != nil {
		f.running()
		f.running = nil
	}
	f.mu.Unlock()
	return f.Start(ctx, name)
}

func (f *manager) Start(ctx context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running != nil {
		return nil
	}
	if err := newGuard(f.m).guard(); err != nil {
		return err
	}
	_, behaviour, _ := standin(f.m.binary)
	life, end := context.WithCancel(context.Background())
	f.running, f.how = end, initsystem.Ready
	switch behaviour {
	case "exits": // and is started again, after a pause as real ones make it, in which the watcher hears of the error
		end()
		f.running = nil
		f.wait.Go(func() { time.Sleep(time.Second); _ = f.Start(ctx, name) })
		return fmt.Errorf("service does not start; it says:\nI do not work")
	case "fails": // and is not
		f.running, f.how = nil, initsystem.Failed
		return fmt.Errorf("service does not start; it says:\nI am misconfigured")
	case "hangs":
		return nil
	}
	f.wait.Go(func() { f.serve(life, behaviour) })
	return nil
}

// serve is a version that becomes ready.
func (f *manager) serve(ctx context.Context, behaviour string) {
	_ = state.Write(f.m.dirs, state.Process{Name: state.Front, PID: 1, Started: time.Now(), Ready: time.Now()})
	own, _ := release.SumFile(f.m.binary)
	well := func() string {
		if behaviour == "stumbles" {
			return "the node exited"
		}
		return ""
	}
	s, _, _ := Read(f.m.dirs.Data)
	if s.Phase == Trial {
		_, _, _ = confirm(ctx, s, own, well)
	}
}

func newGuard(m *machine) *engine {
	e := newEngine(m.dirs.Data)
	e.removeTables = func(...string) error { return nil }
	return e
}

func TestUpgrade(t *testing.T) {
	for _, c := range []struct {
		name, version, behaviour string
		options                  Options
		stopped                  bool
		want                     Phase // "" if it is refused
		class                    exitcode.Class
		says                     string
		verify                   func(t *testing.T, file string) error // file is the one that was given
	}{
		{name: "replaced after it was verified", version: "v1.37.1+coracle.2", want: Committed, verify: func(t *testing.T, file string) error {
			makeStandin(t, file, "v1.37.1+coracle.3", "")
			return nil
		}},
		{name: "not verified", version: "v1.37.1+coracle.2", class: exitcode.Untrusted, says: "not to be trusted", verify: func(*testing.T, string) error {
			return exitcode.With(exitcode.Untrusted, errors.New("not to be trusted"))
		}},
		{name: "works", version: "v1.37.1+coracle.2", want: Committed},
		{name: "next minor", version: "v1.38.0+coracle.1", want: Committed},
		{name: "service is stopped", version: "v1.37.1+coracle.2", stopped: true, want: Committed},
		{name: "exits", version: "v1.37.1+coracle.2", behaviour: "exits", want: RolledBack, class: exitcode.RolledBack, says: "I do not work"},
		{name: "misconfigured", version: "v1.37.1+coracle.2", behaviour: "fails", want: RolledBack, class: exitcode.RolledBack, says: "I am misconfigured"},
		{name: "hangs", version: "v1.37.1+coracle.2", behaviour: "hangs", want: RolledBack, class: exitcode.RolledBack, says: "not ready within 300ms, and has written no state"},
		{name: "does not stay ready", version: "v1.37.1+coracle.2", behaviour: "stumbles", want: RolledBack, class: exitcode.RolledBack, says: "the node exited"},
		{name: "older", version: "v1.37.0+coracle.9", class: exitcode.Misuse, says: "is older than v1.37.1+coracle.1"},
		{name: "older and meant", version: "v1.37.0+coracle.9", options: Options{Downgrade: true}, want: Committed},
		{name: "minor skipped", version: "v1.39.0+coracle.1", class: exitcode.Misuse, says: "upgrade to 1.38 first"},
		{name: "no version", version: "v1", class: exitcode.Misuse, says: "is not a version of coracle"},
		{name: "payload damaged", version: "v1.37.1+coracle.13", class: exitcode.Failed, says: "not copied whole"},
		{name: "only a look", version: "v1.37.1+coracle.2", options: Options{DryRun: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			m := newMachine(t, dir)
			_ = os.Remove(m.binary)
			makeStandin(t, m.binary, "v1.37.1+coracle.1", "")
			makeStandin(t, filepath.Join(dir, "new"), c.version, c.behaviour)
			f := &manager{t: t, m: m, how: initsystem.Ready}
			defer f.wait.Wait()
			if c.stopped {
				f.how = initsystem.Stopped
			}
			o := c.options
			o.File, o.Timeout, o.Hold = filepath.Join(dir, "new"), time.Minute, 50*time.Millisecond
			if c.verify != nil {
				given := o.File
				o.Verify = func(copied string) error {
					if version, _, _ := standin(copied); version != c.version {
						t.Errorf("%s is verified", version)
					}
					return c.verify(t, given)
				}
			}
			if c.behaviour == "hangs" {
				o.Timeout = 300 * time.Millisecond
			}
			o.Launch = func(context.Context, Target, []string) error {
				f.wait.Go(func() {
					if err := Watch(context.Background(), m.dirs.Data, f); err != nil {
						t.Errorf("watching: %v", err)
					}
				})
				return nil
			}
			s, err := Upgrade(t.Context(), Target{Service: "coracle", Binary: m.binary, Dirs: m.dirs, Server: true}, f, o)
			if exitcode.ClassOf(err) != c.class || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("class %d: %v", exitcode.ClassOf(err), err)
			}
			if _, there, _ := Read(m.dirs.Data); !there != (c.want == "") || c.want != "" && s.Phase != c.want {
				t.Errorf("%s: %s", s.Phase, s.Error)
			}
			version, _, _ := standin(m.binary)
			if want := map[bool]string{true: c.version, false: "v1.37.1+coracle.1"}[c.want == Committed]; version != want {
				t.Errorf("%s is installed", version)
			}
			for _, path := range []string{next(m.binary), back(m.binary), m.place().trial()} {
				if paths.Exists(path) {
					t.Errorf("%s is left", path)
				}
			}
		})
	}
}

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	self, _ := os.Executable()
	whole, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	other := append([]byte(nil), whole[:4096]...)
	other[18], other[19] = 0xb7, 0 // the machine, of the header
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"script": {[]byte("#!/bin/sh\n"), "not an executable for Linux"},
		"empty":  {nil, "not an executable for Linux"},
		"arm":    {append(other, whole[4096:]...), "is for arm64"},
		"short":  {whole[:200], "not copied whole"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, c.data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := inspect(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := inspect(self); err != nil {
		t.Error(err)
	}
	if err := inspect(dir); err == nil {
		t.Error("a directory is taken for a file")
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		from, to          string
		server, downgrade bool
		want              string
	}{
		{"v1.37.1+coracle.1", "v1.37.1+coracle.2", true, false, ""},
		{"v1.37.1+coracle.9", "v1.37.1+coracle.10", true, false, ""},
		{"v1.37.1+coracle.2", "v1.37.2+coracle.1", true, false, ""},
		{"v1.37.1+coracle.1", "v1.38.0-rc.1+coracle.1", true, false, ""},
		{"v1.37.1+coracle.dev", "v1.37.1+coracle.1", true, false, ""},
		{"v1.37.1+coracle.2", "v1.37.1+coracle.1", true, false, "is older"},
		{"v1.37.1+coracle.2", "v1.37.1+coracle.1", true, true, ""},
		{"v1.38.0+coracle.1", "v1.37.9+coracle.1", true, true, ""},
		{"v1.38.0+coracle.1", "v1.36.9+coracle.1", true, true, "too far back"},
		{"v1.37.1+coracle.1", "v1.39.0+coracle.1", true, false, "must not skip"},
		{"v1.37.1+coracle.1", "v1.39.0+coracle.1", false, false, ""},
		{"v1.37.1+coracle.1", "v2.0.0+coracle.1", true, false, "must not skip"},
		{"v1.37.1+coracle.1", "v1.37.1+k3s1", true, false, "not a version of coracle"},
	} {
		err := allowed(c.from, c.to, c.server, c.downgrade)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
}
