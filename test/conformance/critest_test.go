// Package conformance runs cri-tools' validation suite on a coracle node. scripts/critest builds what it needs.
package conformance

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

// TestCRI runs the suite beside a server, on the same host, with each way to start shims. CORACLE_CRITEST is a directory with the suite, in
// the directory bin, and its images; the logs and reports are written there. The suite gets the test's arguments after "--".
func TestCRI(t *testing.T) {
	dir := os.Getenv("CORACLE_CRITEST")
	if dir == "" {
		t.Skip("CORACLE_CRITEST is not set: run scripts/conformance critest")
	}
	slots.Take(t)
	hosts.Bin(t)
	wire := hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24"))
	for _, runtime := range []config.PodRuntime{config.ClassicShims, config.SharedShims} {
		t.Run(string(runtime), func(t *testing.T) { validate(t, wire, dir, string(runtime)) })
	}
}

func validate(t *testing.T, wire *hosts.Wire, dir, runtime string) {
	h := hosts.New(t, wire, "cri", hosts.Options{})
	serveImages(t, h, filepath.Join(dir, "images"))
	s := h.Start("--pod-runtime="+runtime,
		// The kubelet ends pods that are none of its own, like the suite's, but not before it has read all of its sources of pods.
		"--kubelet-arg=manifest-url=http://127.0.0.1:9/",
		// It takes containers without its labels for those of one pod, and removes all but the last that has ended.
		"--kubelet-arg=maximum-dead-containers-per-container=1000")
	h.Coracle("wait", "--timeout", "3m")
	run(t, h, filepath.Join(dir, "bin"), filepath.Join(dir, runtime))
	if s.Restarts() != 0 {
		t.Error("a child process was restarted")
	}
	hosts.Eventually(t, time.Minute, func() error {
		if left := h.Run("sh", "-c", "pgrep -a containerd-shim || [ $? = 1 ]"); left != "" {
			return fmt.Errorf("all pods are removed, and these shims run:\n%s", left)
		}
		return nil
	})
}

// serveImages starts a registry on the host with the archives' images, and makes it the mirror of their registries.
func serveImages(t *testing.T, h *hosts.Host, dir string) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("there are no images in %s (%v)", dir, err)
	}
	r := registries.Start(t, h, registries.Options{})
	mirrors := map[string]bool{"k8s.gcr.io": true} // the suite pulls one image from there, too
	for _, archive := range archives {
		img := registries.ReadImage(t, archive)
		registry, name, _ := strings.Cut(img.Name(), "/")
		mirrors[registry] = true
		r.Push(name, img)
	}
	text := "mirrors:\n"
	for registry := range mirrors {
		text += fmt.Sprintf("  %s: {endpoint: [%q]}\n", registry, r.URL)
	}
	must(t, os.MkdirAll(h.Path("/etc/coracle"), 0o755))
	must(t, os.WriteFile(h.Path("/etc/coracle/registries.yaml"), []byte(text), 0o600))
}

// run runs the suite on the host, with the programs of bin. Its output and report are in the files out.txt and out.xml.
func run(t *testing.T, h *hosts.Host, bin, out string) {
	t.Helper()
	must(t, os.CopyFS(h.Path("/opt/critest"), os.DirFS(bin)))
	log, err := os.Create(out + ".txt")
	must(t, err)
	defer log.Close()
	cmd := h.Command("/opt/critest/critest", append([]string{
		"-runtime-endpoint=unix:///run/coracle/containerd/containerd.sock",
		"-ginkgo.no-color", "-ginkgo.timeout=1h", "-ginkgo.junit-report=/tmp/junit.xml",
	}, flag.Args()...)...)
	cmd.Env = append(cmd.Env, "PATH=/opt/critest:"+os.Getenv("PATH")) // critest -parallel runs ginkgo
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	if err := cmd.Run(); err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	report, err := os.ReadFile(h.Path("/tmp/junit.xml"))
	must(t, err)
	must(t, os.WriteFile(out+".xml", report, 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
