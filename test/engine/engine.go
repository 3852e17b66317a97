// Package engine runs a Docker engine for a test, on a host made of namespaces. It shares no network, process, cgroup
// or file with an engine of this machine, and ends with the host, even if the test is killed. Containers reach nothing
// outside the host; images come from files.
package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// Engine is a running Docker engine.
type Engine struct {
	// Host is the host of the engine and its containers, from which published ports can be reached.
	Host *hosts.Host
	t    testing.TB
}

// startTimeout limits the engine's start, which takes a second or two.
const startTimeout = 2 * time.Minute

// Start starts an engine, which ends with the test. The package of the test needs hosts.Main. The test is skipped with
// a message if it does not run as root or there is no Docker.
func Start(t testing.TB) *Engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("running a Docker engine needs root")
	}
	for _, program := range []string{"dockerd", "docker"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s in PATH: scripts/test e2e installs the Debian package docker.io", program)
		}
	}
	h := hosts.New(t, nil, "engine", hosts.Options{Disks: []string{"/var/lib/docker", "/var/lib/containerd"}})
	e := &Engine{Host: h, t: t}
	e.run()
	return e
}

// run starts the engine's daemon and waits until it answers.
func (e *Engine) run() {
	e.t.Helper()
	daemon := e.Host.Command("dockerd", "--log-level", "warn")
	var log bytes.Buffer
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		e.t.Fatalf("starting dockerd: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	e.t.Cleanup(func() {
		e.Host.Kill()
		if <-ended; e.t.Failed() {
			e.t.Logf("log of dockerd:\n%s", worthwhile(log.String()))
		}
	})
	deadline := time.After(startTimeout)
	for {
		_, err := e.Try("version")
		if err == nil {
			return
		}
		select {
		case err := <-ended:
			ended <- err
			e.t.Fatalf("dockerd has ended: %v", err)
		case <-deadline:
			e.t.Fatalf("dockerd does not answer after %s: %v", startTimeout, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// worthwhile drops messages of containerd about its own start, at a level that dockerd does not pass on to it.
func worthwhile(log string) string {
	var out []string
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "level=info") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// For is the engine for a subtest: its methods fail t.
func (e *Engine) For(t testing.TB) *Engine { return &Engine{Host: e.Host.For(t), t: t} }

// commandTimeout limits one docker command; loading a large image is the slowest.
const commandTimeout = 2 * time.Minute

// Command prepares a docker command that talks to this engine, in its host's namespaces.
func (e *Engine) Command(args ...string) *exec.Cmd {
	cmd := e.Host.Command("docker", args...)
	cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "DOCKER_") }) // another engine's
	return cmd
}

// Docker runs a docker command and returns its standard output without surrounding space; the test fails if the command
// does.
func (e *Engine) Docker(args ...string) string {
	e.t.Helper()
	out, err := e.Try(args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// Try runs a docker command and returns its standard output without surrounding space; the error carries its standard
// error. A command that does not end in time is killed.
func (e *Engine) Try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	return e.TryIn(ctx, args...)
}

// TryIn is Try with a time limit of the caller's choice.
func (e *Engine) TryIn(ctx context.Context, args ...string) (string, error) {
	cmd := e.Command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second // the client ends with the host at the latest
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("starting docker: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if ctx.Err() != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		err = fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), err
}

// Load loads images from an archive on this machine, as docker save or coracle's image build makes them.
func (e *Engine) Load(file string) {
	e.t.Helper()
	e.fromFile(file, "load")
}

// Import makes an image from a tar archive with a root file system; further arguments are those of docker import.
func (e *Engine) Import(file, name string, args ...string) {
	e.t.Helper()
	e.fromFile(file, append(append([]string{"import"}, args...), "-", name)...)
}

// Build builds an image with the engine's built-in builder from an archive with the sources; further arguments are
// those of docker build.
func (e *Engine) Build(file, name string, args ...string) {
	e.t.Helper()
	e.fromFile(file, append(append([]string{"build", "--tag", name}, args...), "-")...)
}

// fromFile runs a docker command with a file of this machine as its input; the host need not have the file.
func (e *Engine) fromFile(file string, args ...string) {
	e.t.Helper()
	f, err := os.Open(file)
	if err != nil {
		e.t.Fatal(err)
	}
	defer f.Close()
	cmd := e.Command(args...)
	cmd.Stdin, cmd.Env = f, append(cmd.Env, "DOCKER_BUILDKIT=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		e.t.Fatalf("docker %s < %s: %v: %s", strings.Join(args, " "), file, err, out)
	}
}

// Logs is what a container has printed so far, its errors included.
func (e *Engine) Logs(container string) string {
	out, err := e.Command("logs", container).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// Privileged returns the arguments of docker run that give a container all privileges of this machine: --privileged, or
// as much as the engine allows if this machine lacks a capability, because then it refuses --privileged.
func Privileged() []string {
	return slices.Clone(privileged(resource()))
}

func privileged(resource bool) []string {
	if resource {
		return []string{"--privileged"}
	}
	return []string{"--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE",
		"--security-opt", "seccomp=unconfined", "--security-opt", "systempaths=unconfined"}
}

// resource reports whether this machine's processes have CAP_SYS_RESOURCE.
func resource() bool {
	const bit = 24
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		var set uint64
		if n, _ := fmt.Sscanf(line, "CapEff: %x", &set); n == 1 {
			return set&(1<<bit) != 0
		}
	}
	return false
}
