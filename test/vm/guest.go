package vm

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// bootLimit limits a boot, which takes an emulated processor a minute, and longer beside other work.
const bootLimit = 30 * time.Minute

// Boot starts the machine, and returns when systemd has started all units, with how long that took.
func (m *Machine) Boot() time.Duration {
	m.t.Helper()
	began := time.Now()
	m.start()
	var err error
	for m.master == nil {
		if time.Since(began) > bootLimit {
			m.t.Fatalf("the machine does not come up: %v; its console:\n%s", err, m.console())
		}
		select {
		case <-m.ended:
			m.t.Fatalf("the machine has ended at its boot; its console:\n%s", m.console())
		case <-time.After(500 * time.Millisecond):
			err = m.call()
		}
	}
	if state, err := m.Try("systemctl", "is-system-running", "--wait"); state != "running" && state != "degraded" {
		m.t.Fatalf("the machine is %q, %v; its console:\n%s", state, err, m.console())
	}
	m.Sh(`mkdir -p /mnt/coracle /mnt/images
for tag in coracle images; do mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=1048576 $tag /mnt/$tag; done`)
	took := time.Since(began)
	if m.Slower == 0 {
		m.Slower = m.measure()
	}
	return took
}

// loop is what is measured: a shell's arithmetic, of which a processor does nothing but that.
const loop = `i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done`

// measure compares the loop here, in time of the processor, with the loop on the machine, in time that passes.
func (m *Machine) measure() float64 {
	m.t.Helper()
	here := exec.Command("dash", "-c", loop)
	if err := here.Run(); err != nil {
		m.t.Fatalf("the loop: %v", err)
	}
	there, err := strconv.ParseInt(m.Run("dash", "-c", `a=$(date +%s%N); `+loop+`; echo $(($(date +%s%N) - a))`), 10, 64)
	if err != nil {
		m.t.Fatalf("the loop there: %v", err)
	}
	return max(1, float64(there)/float64(here.ProcessState.UserTime()+here.ProcessState.SystemTime()))
}

// Within is a time-out on the machine for what may take so long on this one.
func (m *Machine) Within(native time.Duration) time.Duration {
	return time.Duration(float64(native) * m.Slower).Round(time.Second)
}

// options are those of ssh. What is compared is the machine's port on the loopback interface, not a host that others could be.
func (m *Machine) options(more ...string) []string {
	return append([]string{"-q", "-i", filepath.Join(m.image, "key"), "-p", strconv.Itoa(m.ports[ssh]), "-S", m.path("ssh"), "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=30"}, more...)
}

// call makes the ssh connection that all commands share.
func (m *Machine) call() error {
	master := exec.Command("ssh", m.options("-M", "-N", "-o", "ConnectTimeout=60", "root@127.0.0.1")...)
	release, err := nshost.StartDurably(master)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- master.Wait()
		release()
	}()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("ssh: %w", err)
		case <-time.After(200 * time.Millisecond):
			if exec.Command("ssh", m.options("-O", "check", "root@127.0.0.1")...).Run() == nil {
				m.master = master
				return nil
			}
		}
	}
}

// hangUp ends the ssh connection.
func (m *Machine) hangUp() {
	if m.master != nil {
		_ = m.master.Process.Kill()
		m.master = nil
	}
	_ = exec.Command("rm", "-f", m.path("ssh")).Run()
}

// Run runs a command on the machine as root and returns its output without surrounding space; the test fails if the command
// does.
func (m *Machine) Run(name string, args ...string) string {
	m.t.Helper()
	out, err := m.Try(name, args...)
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// Try is Run for a command that may fail. The error holds all that the command printed.
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
		m.t.Fatalf("writing %s: %v", path, err)
	}
}

// commandLimit limits a command on the machine.
const commandLimit = 40 * time.Minute

func (m *Machine) do(input string, command []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	words := make([]string, len(command)) // a shell there reads them
	for i, w := range command {
		words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	cmd := exec.CommandContext(ctx, "ssh", m.options("-o", "ControlMaster=no", "root@127.0.0.1", "PATH=$PATH:/opt/bin "+strings.Join(words, " "))...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s%s", strings.Join(command, " "), err, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String()), err
}
