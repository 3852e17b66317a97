package engine

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

// TestEngine runs a container of an image that contains only busybox.
func TestEngine(t *testing.T) {
	slots.Take(t)
	e := Start(t)
	e.Import(busyboxTar(t), "coracle.test/box:1")
	run := func(args ...string) string {
		t.Helper()
		return e.Docker(append([]string{"run", "--rm", "coracle.test/box:1", "/busybox"}, args...)...)
	}
	if got := run("echo", "hello"); got != "hello" {
		t.Errorf("a container says %q", got)
	}
	if got := run("ip", "-o", "address"); !strings.Contains(got, "eth0") {
		t.Errorf("a container has the addresses %s", got)
	}
	all := append(append([]string{"run", "--rm"}, Privileged()...), "coracle.test/box:1", "/busybox", "mount", "-t", "tmpfs", "x", "/sys")
	e.Docker(all...)
	if _, err := e.Try("run", "no.such/image:1"); err == nil {
		t.Error("an image that is not there is no error")
	}
}

// busyboxTar is a root file system with a static busybox.
func busyboxTar(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("no /bin/busybox: scripts/setup installs it")
	}
	path := filepath.Join(t.TempDir(), "box.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.WriteHeader(&tar.Header{Name: "busybox", Mode: 0o755, Size: int64(len(data))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
