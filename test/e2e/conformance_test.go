package e2e

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
)

// testConformance runs coracle conformance with an image that stands in for upstream's.
func testConformance(t *testing.T, h *hosts.Host) {
	i := slices.IndexFunc(hosts.Images(t), func(path string) bool { return strings.HasSuffix(path, "busybox.tar") })
	const image = "coracle.test/conformance:1"
	registries.ReadImage(t, hosts.Images(t)[i]).With(t, "conformance.sh", manifest(t, "conformance.sh")).
		Running(t, "/bin/sh", "/conformance.sh").Write(t, image, h.Path("/root/conformance.tar"))
	h.Coracle("images", "import", "/root/conformance.tar")
	c := conformanceRun{Host: h, image: image}

	c.fails(t, "need 2 nodes", "--image", image)
	h.Run("sh", "-c", "sed -E 's/^( *)client-certificate-data:/\\1as: a-viewer\\n&/' /etc/coracle/kubeconfig.yaml >/root/viewer.yaml")
	c.fails(t, `"a-viewer" may not do everything`, "--kubeconfig", "/root/viewer.yaml", "--focus", "passes")
	c.passes(t)
	out := c.fails(t, "1 of 2 tests failed", "--image", image, "--focus", "fails", "--output", "/root/failed")
	if !strings.Contains(out, "failed: [sig-node] two [Conformance]\n") {
		t.Errorf("the failed test is not named:\n%s", out)
	}
	c.gone(t)
	c.fails(t, "cannot pull image 127.0.0.1:1/none:1", "--image", "127.0.0.1:1/none:1", "--focus", "passes", "--output", "/root/none")
	c.gone(t)
	c.interrupted(t)
}

type conformanceRun struct {
	*hosts.Host
	image string
}

// fails runs the command, which must fail with a sentence, and returns what it printed.
func (c conformanceRun) fails(t *testing.T, sentence string, args ...string) string {
	t.Helper()
	cmd := c.Command(hosts.Bin(t), append([]string{"conformance"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), sentence) {
		t.Errorf("coracle conformance %q: %v, want %q in\n%s", args, err, sentence, out)
	}
	return string(out)
}

// gone checks that nothing is left in the cluster.
func (c conformanceRun) gone(t *testing.T) {
	t.Helper()
	if left := c.Kubectl("get", "namespaces,clusterrolebindings", "-l", "app.kubernetes.io/managed-by=coracle-conformance", "-o", "name"); left != "" {
		t.Errorf("left in the cluster: %s", left)
	}
}

func (c conformanceRun) passes(t *testing.T) {
	out := c.Coracle("conformance", "--image", c.image, "--focus", "passes|no more", "--skip", "it's", "--parallel", "2", "--output", "/root/passed")
	for _, want := range []string{"runner: passes|no more|it's|-v --procs=2|\n", "Ran 2 of 3 Specs\n", "passed 2, failed 0, skipped 1\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	c.gone(t)
	minor := strings.Join(strings.SplitN(strings.TrimSpace(c.Coracle("version", "--short")), ".", 3)[:2], ".")
	if files := c.Run("tar", "-tzf", "/root/passed/coracle-"+minor+".tar.gz"); files !=
		strings.ReplaceAll("V/README.md\nV/PRODUCT.yaml\nV/e2e.log\nV/junit_01.xml\n", "V", minor+"/coracle") {
		t.Errorf("the archive has %s", files)
	}
	dir := filepath.Join("/root/passed", minor, "coracle")
	if log := c.Run("cat", dir+"/e2e.log"); log != "Ran 2 of 3 Specs\n" {
		t.Errorf("e2e.log has %q", log)
	}
	if modes := c.Run("sh", "-c", "stat -c %a "+dir+"/*"); modes != strings.Repeat("644\n", 4) {
		t.Errorf("the files have modes %s", modes)
	}
}

// interrupted: a run that is killed keeps others away until it is cleaned up, and one that is interrupted tidies up by itself. The tests
// are interrupted too: they end before the pod's grace of a minute.
func (c conformanceRun) interrupted(t *testing.T) {
	args := []string{"--image", c.image, "--focus", "hangs", "--output", "/root/interrupted"}
	for _, with := range []string{"KILL", "INT"} {
		cmd := c.Command("sh", append([]string{"-c", `echo $$ >/root/conformance.pid && exec "$@"`, "sh", hosts.Bin(t), "conformance"}, args...)...)
		var complaints bytes.Buffer
		cmd.Stderr = &complaints
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := awaitText(out, "Running\n"); err != nil {
			t.Errorf("%v: %s", err, complaints.String())
		}
		if with == "KILL" {
			c.fails(t, "a run is under way since", args...)
		}
		began := time.Now()
		c.Run("sh", "-c", "kill -"+with+" $(cat /root/conformance.pid)")
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err == nil {
			t.Errorf("SIG%s: it succeeded", with)
		}
		if with == "KILL" {
			c.Coracle("conformance", "--cleanup")
		} else if !strings.Contains(complaints.String(), "it was interrupted") {
			t.Errorf("it printed %s", complaints.String())
		}
		c.gone(t)
		if took := time.Since(began); took > 45*time.Second {
			t.Errorf("SIG%s: the tests were not interrupted, and removing them took %s", with, took)
		}
	}
	if out, err := c.TryCoracle("conformance", "--cleanup"); err != nil {
		t.Errorf("with nothing to remove: %s, %v", out, err)
	}
}

// awaitText reads until a text has come.
func awaitText(r io.Reader, text string) error {
	var got []byte
	for piece := make([]byte, 512); !bytes.Contains(got, []byte(text)); {
		n, err := r.Read(piece)
		if got = append(got, piece[:n]...); err != nil {
			return fmt.Errorf("%w instead of %q, after %q", err, text, got)
		}
	}
	return nil
}
