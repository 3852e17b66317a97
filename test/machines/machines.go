// Package machines boots whole machines for tests: Debian with systemd, as scripts/test-machine makes it, each in a
// container of a Docker engine that the test starts. The coracle under test is a file on them; nothing is installed.
// Tests can compare the content of a machine's disk, kernel and firewall before and after.
package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/engine"
	"github.com/coracle-dev/coracle/test/hosts"
)

// image is the image of the machines' disks.
const image = "coracle.test/machine:1"

// Coracle is the directory of the executable under test on a machine, and Bin the executable.
const (
	Coracle = "/mnt/coracle"
	Bin     = Coracle + "/coracle"
)

// Site is a network of machines, which reach only each other.
type Site struct {
	Engine *engine.Engine
	images string // directory of test images, "" for none
}

// Open makes a site, and removes it with its machines when the test ends. The package of the test needs hosts.Main. The
// test is skipped if the files that `make test` makes are missing.
func Open(t testing.TB) *Site {
	t.Helper()
	hosts.Bin(t)
	disk := os.Getenv("CORACLE_TEST_MACHINE")
	if disk == "" {
		t.Skip("CORACLE_TEST_MACHINE names no file with a machine's disk: run `make test`, which has scripts/test-machine make one")
	}
	s := &Site{Engine: engine.Start(t), images: os.Getenv("CORACLE_TEST_IMAGES")}
	s.Engine.Import(disk, image)
	return s
}

// Machine is a machine that runs or is off.
type Machine struct {
	Name string
	site *Site
	t    testing.TB
}

// Options are the properties of a machine that differ from the default.
type Options struct {
	// Init is the command that the machine starts with instead of systemd.
	Init []string
	// Args are further arguments of docker run.
	Args []string
}

// disks are directories with a file system of their own, because overlayfs, a container's root, cannot hold another
// overlayfs.
var disks = []string{"/var/lib/coracle", "/var/lib/kubelet"}

// Boot starts a new machine of that name and waits until it is up. It is removed when the test ends; if the test fails,
// the end of its journal is printed.
func (s *Site) Boot(t testing.TB, name string, opts Options) *Machine {
	t.Helper()
	m := &Machine{Name: name, site: s, t: t}
	args := append([]string{"run", "--detach", "--name", name, "--hostname", name, "--stop-signal", "SIGRTMIN+3", "--cgroupns", "private",
		"--tmpfs", "/run", "--tmpfs", "/run/lock", "--tmpfs", "/tmp", "--device", "/dev/kmsg",
		"--volume", filepath.Dir(hosts.Bin(t)) + ":" + Coracle + ":ro"}, engine.Privileged()...)
	for _, disk := range disks {
		args = append(args, "--volume", disk)
	}
	if s.images != "" {
		args = append(args, "--volume", s.images+":/mnt/images:ro")
	}
	init := opts.Init
	if init == nil {
		init = []string{"/lib/systemd/systemd"}
	}
	args = append(append(args, opts.Args...), image, "/bin/sh", "-c", unlock, "sh")
	s.Engine.For(t).Docker(append(args, init...)...)
	t.Cleanup(m.remove)
	if opts.Init == nil {
		m.awaitUp()
	}
	return m
}

// unlock makes the kernel's file systems writable, as on real machines; an engine mounts them read-only. It hides
// cgroup hierarchies that the engine has not given the machine: systemd would mount them, and they would be those of
// all machines.
const unlock = `mount -o remount,bind,rw /sys
for dir in /sys/fs/cgroup /sys/fs/cgroup/*; do mount -o remount,bind,rw $dir; done
while read -r name rest; do
	case $name in "#"*) ;; *) [ -d "/sys/fs/cgroup/$name" ] || continue ;; esac
	echo "$name	$rest"
done </proc/cgroups >/run/cgroups
mount --bind /run/cgroups /proc/cgroups
mount --make-rshared /
exec "$@"`

// upTimeout limits a machine's boot, which takes less than a second.
const upTimeout = 2 * time.Minute

// awaitUp waits until systemd has started all units.
func (m *Machine) awaitUp() {
	m.t.Helper()
	deadline := time.Now().Add(upTimeout)
	for {
		state, err := m.Try("systemctl", "is-system-running", "--wait")
		if state == "running" || state == "degraded" {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("machine %s does not come up: %s %v\n%s", m.Name, state, err, m.site.Engine.Logs(m.Name))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (m *Machine) remove() {
	if m.t.Failed() {
		journal, _ := m.Try("journalctl", "--no-pager", "--lines=60", "--output=short-monotonic", "--unit=coracle*")
		m.t.Logf("journal of %s:\n%s", m.Name, journal)
	}
	if _, err := m.site.Engine.Try("rm", "--force", "--volumes", m.Name); err != nil {
		m.t.Logf("removing machine %s: %v", m.Name, err)
	}
}

// For is the machine for a subtest: its methods fail t.
func (m *Machine) For(t testing.TB) *Machine {
	sub := *m
	sub.t = t
	return &sub
}

// Reboot shuts the machine down in order and starts it again. It returns when the machine is up, with the duration of
// the shutdown.
func (m *Machine) Reboot() (down time.Duration) {
	m.t.Helper()
	began := time.Now()
	m.docker("stop", "--time", "120", m.Name)
	down = time.Since(began)
	m.docker("start", m.Name)
	m.awaitUp()
	return down
}

// PullPlug ends the machine at once and starts it again.
func (m *Machine) PullPlug() {
	m.t.Helper()
	m.docker("kill", m.Name)
	m.docker("start", m.Name)
	m.awaitUp()
}

func (m *Machine) docker(args ...string) string {
	m.t.Helper()
	out, err := m.site.Engine.TryIn(m.t.Context(), args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// IP is the machine's address, which may change at a reboot.
func (m *Machine) IP() string {
	m.t.Helper()
	return m.docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", m.Name)
}

// Run runs a command on the machine as root and returns its output without surrounding space; the test fails if the command
// does.
func (m *Machine) Run(name string, args ...string) string {
	m.t.Helper()
	out, err := m.Try(name, args...)
	if err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
	return out
}

// commandTimeout limits one command on a machine.
const commandTimeout = 10 * time.Minute

// Try is Run for a command that may fail. The error holds all that the command printed and its exit code, for Code.
func (m *Machine) Try(name string, args ...string) (string, error) {
	return m.do("", append([]string{name}, args...))
}

// Sh runs a script on the machine.
func (m *Machine) Sh(script string, args ...string) string {
	m.t.Helper()
	return m.Run("sh", append([]string{"-euc", script, "sh"}, args...)...)
}

// TrySh is Sh for a script that may fail.
func (m *Machine) TrySh(script string, args ...string) (string, error) {
	return m.Try("sh", append([]string{"-euc", script, "sh"}, args...)...)
}

// Write writes a file on the machine.
func (m *Machine) Write(path, content string) {
	m.t.Helper()
	if _, err := m.do(content, []string{"sh", "-c", `mkdir -p "$(dirname "$1")" && cat >"$1"`, "sh", path}); err != nil {
		m.t.Fatalf("writing %s on %s: %v", path, m.Name, err)
	}
}

// do runs a command on the machine with the given input.
func (m *Machine) do(input string, command []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := m.site.Engine.Command(append([]string{"exec", "--interactive", m.Name}, command...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s%s", strings.Join(command, " "), errors.Join(err, ctx.Err()), out.String(), errs.String())
	}
	return strings.TrimSpace(out.String()), err
}

// Code is the exit code in an error of Try, 0 for nil, -1 if the command did not end by itself.
func Code(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}
