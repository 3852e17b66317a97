package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

// story is the state that the steps share.
type story struct {
	kind
	m      *Machine
	before machines.Inventory
	pods   string
	facts  map[string]string // what people want to know of the machine
	report *Report
}

// step is something that is tried on each machine.
type step struct {
	name string
	run  func(*story, *testing.T)
	long bool // left out with -short
}

func steps() []step {
	return []step{
		{"boot", (*story).boot, false},
		{"install.sh", (*story).install, false},
		{"app", (*story).app, false},
		{"network", (*story).network, false},
		{between, (*story).between, false},
		{"volume, logs, exec, top", (*story).tools, false},
		{"memory limit", (*story).memory, false},
		{"cgroups", (*story).cgroups, false},
		{"restart", (*story).restart, true},
		{"reboot", (*story).reboot, true},
		{"power cut", (*story).powerCut, true},
		{"upgrade", (*story).upgrade, true},
		{"uninstall", (*story).uninstall, false},
	}
}

// tooSlow is how many times as slow a machine may be. At 128 times, where other programs needed the processors, the API server was not ready after 8 minutes, because reads from
// etcd took longer than the 7 s that it gives them, and were repeated.
const tooSlow = 80

// quietWithin is how long a machine that is too slow waits for other programs to end.
const quietWithin = 15 * time.Minute

// TestMachines tries each step on each kind of machine, one machine after another, since each takes all processors. It takes 20 minutes for each where
// the processor is emulated; `make machines` runs it, and sets CORACLE_TEST_VM.
func TestMachines(t *testing.T) {
	if os.Getenv("CORACLE_TEST_VM") == "" {
		t.Skip("CORACLE_TEST_VM is not set: run `make machines`, which takes hours where the processor has to be emulated")
	}
	hosts.Bin(t)
	hosts.Images(t)
	slots.Take(t)
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			report := &Report{Machine: k.name, What: k.what, Date: time.Now().UTC().Format(time.DateOnly)}
			s := &story{kind: k, facts: map[string]string{}, report: report}
			s.opts.Arch = k.arch
			s.m = New(t, image(t, k), s.opts)
			if err := os.MkdirAll(reports, 0o755); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			save := func() { // after each step, so that a run that is interrupted has a report too
				report.Seconds, report.Slower, report.Facts = time.Since(began).Seconds(), s.m.Slower, s.facts
				if s.m.Slower > tooSlow {
					return // it says nothing of this kind of machine
				}
				if err := report.write(filepath.Join(reports, k.name+".json")); err != nil {
					t.Error(err)
				}
			}
			for i, st := range k.all() {
				at := time.Now()
				why := k.skip[st.name]
				if why == "" && st.long && testing.Short() {
					why = "it takes long, and the run was a short one"
				}
				ok := t.Run(st.name, func(t *testing.T) {
					if why != "" {
						t.Skip(why)
					}
					s.m.For(t)
					st.run(s, t)
				})
				report.Steps = append(report.Steps, Result{Step: st.name, OK: ok, Skipped: why, Seconds: time.Since(at).Seconds()})
				save()
				t.Logf("%s: %t after %s", st.name, ok, time.Since(at).Round(time.Second))
				if !ok && i < 3 { // nothing can be tried without the app
					return
				}
			}
		})
	}
}

// image makes the disk that a machine begins with, and returns its directory.
func image(t *testing.T, k kind) string {
	t.Helper()
	cmd := exec.Command("../../scripts/test-vm", append([]string{k.suite, k.arch}, strings.Fields(k.packages)...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("making the disk: %v", err)
	}
	return strings.TrimSpace(string(out))
}
