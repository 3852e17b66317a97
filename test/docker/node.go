// Package docker tests the container image on a Docker engine of its own, with real pods in the containers.
package docker

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/engine"
	"github.com/coracle-dev/coracle/test/hosts"
)

// least are the arguments of docker run that give a container exactly the privileges that a node needs. docs/docker.md
// and docs/examples/compose.yaml have the same; a test compares.
func least() []string {
	return []string{"--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined"}
}

// imagesDir is the directory of test images on the engine's host.
const imagesDir = "/var/lib/coracle/images"

// archive is the image under test, from CORACLE_TEST_CONTAINER_IMAGE; the test is skipped with a message if it is not
// set.
func archive(t testing.TB) string {
	t.Helper()
	path := os.Getenv("CORACLE_TEST_CONTAINER_IMAGE")
	if path == "" {
		t.Skip("CORACLE_TEST_CONTAINER_IMAGE names no archive: scripts/image makes dist/coracle-image.tar, and `make test` sets it")
	}
	return path
}

// start starts an engine with the image and the tests' images.
func start(t testing.TB) *engine.Engine {
	t.Helper()
	hosts.Bin(t)
	image := archive(t)
	e := engine.Start(t)
	e.Host.CopyImages()
	e.Load(image)
	return e
}

// node is a container that runs coracle.
type node struct {
	t    testing.TB
	e    *engine.Engine
	name string
}

// run starts a container of the image with the least privileges; args are options of docker run, then "--" and the
// command. It is removed when the test ends.
func run(t testing.TB, e *engine.Engine, name string, args ...string) node {
	t.Helper()
	options, command := split(args)
	return runWith(t, e, name, append(least(), options...), command)
}

// runWith is run with the given options only.
func runWith(t testing.TB, e *engine.Engine, name string, options, command []string) node {
	t.Helper()
	n := node{t, e.For(t), name}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of container %s:\n%s", name, tail(e.Logs(name), 40))
		}
		_, _ = e.Try("rm", "--force", "--volumes", name)
	})
	all := append([]string{"run", "--detach", "--name", name, "--hostname", name, "--volume", imagesDir + ":/images:ro"}, options...)
	n.e.Docker(append(append(all, "coracle"), command...)...)
	return n
}

// split splits a list at "--".
func split(args []string) (before, after []string) {
	for i, a := range args {
		if a == "--" {
			return args[:i], args[i+1:]
		}
	}
	return args, nil
}

// exec runs a command in the container; the test fails if it does.
func (n node) exec(args ...string) string {
	n.t.Helper()
	return n.e.Docker(append([]string{"exec", n.name}, args...)...)
}

func (n node) try(args ...string) (string, error) {
	return n.e.Try(append([]string{"exec", n.name}, args...)...)
}

// awaitReady waits for the node and returns when it was ready, counted from since.
func (n node) awaitReady(since time.Time) time.Duration {
	n.t.Helper()
	n.exec("coracle", "wait", "--quiet", "--timeout", "300s")
	return time.Since(since)
}

// importImages imports the tests' images.
func (n node) importImages() {
	n.t.Helper()
	var names []string
	for _, image := range hosts.Images(n.t) {
		names = append(names, "/images/"+filepath.Base(image))
	}
	n.exec(append([]string{"coracle", "images", "import"}, names...)...)
}

// apply pipes a manifest into kubectl.
func (n node) apply(manifest string) {
	n.t.Helper()
	cmd := n.e.Command("exec", "--interactive", n.name, "kubectl", "apply", "--filename", "-")
	cmd.Stdin = strings.NewReader(manifest)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("%s: applying: %v: %s", n.name, err, out.String())
	}
}

// probe requests the Service web by name from the pod client until it answers.
func (n node) probe(timeout time.Duration) (out string) {
	n.t.Helper()
	hosts.Eventually(n.t, timeout, func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		out, err = n.e.TryIn(ctx, "exec", n.name, "kubectl", "exec", "client", "--", "probe", "get", "http://web/hostname")
		return err
	})
	return out
}

// is returns an error unless got is want.
func is(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q, not %q", what, got, want)
	}
	return nil
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
