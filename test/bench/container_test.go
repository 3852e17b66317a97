package bench

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/engine"
)

// measureContainer measures the container image on an engine of its own, with the least privileges.
func measureContainer(t *testing.T, runs int, r *results) {
	image := os.Getenv("CORACLE_TEST_CONTAINER_IMAGE")
	if image == "" {
		t.Skip("CORACLE_TEST_CONTAINER_IMAGE names no archive: scripts/image makes it")
	}
	r.add("container image, as a registry transfers it", "MiB", 64, transferred(t, image))
	e := engine.Start(t)
	e.Load(image)
	for i := range runs + 1 {
		began := time.Now()
		e.Docker("run", "--detach", "--name", "one", "--publish", "6443:6443", "--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN",
			"--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined", "coracle", "server")
		ready := func() float64 {
			e.Docker("exec", "one", "coracle", "wait", "--quiet", "--timeout", "60s")
			return time.Since(began).Seconds()
		}
		first := ready()
		began = time.Now()
		e.Docker("stop", "one")
		stopped := time.Since(began).Seconds()
		began = time.Now()
		e.Docker("start", "one")
		again := ready()
		e.Docker("rm", "--force", "--volumes", "one")
		if i == 0 {
			continue // this run filled the page cache
		}
		r.add("docker run: ready", "s", 6, first)
		r.add("docker stop", "s", 3, stopped)
		r.add("docker start: ready again", "s", 6, again)
	}
}

// transferred is the sum of the sizes in the manifest of an image's archive, in MiB.
func transferred(t *testing.T, archive string) float64 {
	t.Helper()
	var index struct{ Manifests []struct{ Digest string } }
	unmarshal(t, archive, "index.json", &index)
	type part struct{ Size int64 }
	var manifest struct {
		Config part
		Layers []part
	}
	unmarshal(t, archive, path.Join("blobs", strings.Replace(index.Manifests[0].Digest, ":", "/", 1)), &manifest)
	sum := manifest.Config.Size
	for _, l := range manifest.Layers {
		sum += l.Size
	}
	return float64(sum) / (1 << 20)
}

// unmarshal reads one JSON file of a tar archive.
func unmarshal(t *testing.T, archive, name string, into any) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if err == io.EOF {
			t.Fatalf("%s has no %s", archive, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == name {
			if err := json.NewDecoder(in).Decode(into); err != nil {
				t.Fatalf("%s in %s: %v", name, archive, err)
			}
			return
		}
	}
}
