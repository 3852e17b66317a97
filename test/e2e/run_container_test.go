package e2e

import (
	"archive/tar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/engine"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// jobImage writes the archive of a minimal image for CI jobs, which has only a shell.
func jobImage(t *testing.T) string {
	t.Helper()
	shell, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox in PATH: scripts/test e2e installs the Debian package busybox-static")
	}
	program, err := os.ReadFile(shell)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "job.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, h := range []tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))},
		{Name: "bin/sh", Typeflag: tar.TypeSymlink, Linkname: "busybox"},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "root/", Typeflag: tar.TypeDir, Mode: 0o700},
	} {
		err := w.WriteHeader(&h)
		if err == nil && h.Typeflag == tar.TypeReg {
			_, err = w.Write(program)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRunInContainer runs coracle run in containers, like CI jobs, with the capabilities in docs/ci.md, and docker save
// into a cluster beside an engine.
func TestRunInContainer(t *testing.T) {
	slots.Take(t)
	bin := hosts.Bin(t)
	e := engine.Start(t)
	e.Host.CopyImages()
	e.Import(jobImage(t), "job")
	job := func(script string, args ...string) (string, error) {
		line := append([]string{"run", "--rm", "--volume", bin + ":/usr/local/bin/coracle:ro", "--volume", "/var/lib/coracle/images:/images:ro"}, args...)
		return e.Try(append(line, "job", "coracle", "run", "-q", "--nodes", "2", "--image", "/images/busybox.tar", "--", "sh", "-c", script)...)
	}
	least := []string{"--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined"}
	const script = `kubectl create deployment web --image=coracle.test/busybox:1 --replicas=2 -- sleep 1000 >/dev/null &&
		kubectl rollout status deployment/web --timeout=3m >/dev/null && kubectl get nodes -o name | busybox wc -l; busybox ls -A /var/lib/coracle-clusters | busybox wc -l`
	for name, options := range map[string][]string{"least": least, "privileged": engine.Privileged()} {
		t.Run(name, func(t *testing.T) {
			if out, err := job(script, options...); err != nil || strings.Join(strings.Fields(out), " ") != "2 2" {
				t.Errorf("%v: %q", err, out)
			}
		})
	}
	t.Run("no capabilities", func(t *testing.T) {
		_, err := job("true")
		if err == nil || !strings.Contains(err.Error(), "SYS_ADMIN") {
			t.Errorf("without capabilities it says %v", err)
		}
	})
	t.Run("docker save", func(t *testing.T) {
		h := e.Host.For(t)
		h.Coracle("up", "beside", "--nodes", "2")
		if out := h.Coracle("images", "load", "--name", "beside", "job"); !strings.Contains(out, "into 2 nodes") {
			t.Errorf("loading an image of the engine's: %s", out)
		}
		out, err := h.Try(bin, "images", "load", "--name", "beside", "there-is-none")
		if err == nil || !strings.Contains(err.Error(), "no image of that name") {
			t.Errorf("loading one that the engine lacks: %v: %s", err, out)
		}
		h.Coracle("down", "beside")
	})
	t.Run("coracletest without root", func(t *testing.T) { libraryAsUser(t, e.For(t)) })
}
