package docker

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/engine"
)

// repository is the top directory of the sources.
const repository = "../.."

// dockerfile builds the image with `docker build` and compares it with the one that was made without an engine. The
// builder image is a stand-in with the output of scripts/build, because there is no registry from which to pull an
// image with Go.
func dockerfile(t *testing.T, e *engine.Engine) {
	e = e.For(t)
	built := filepath.Join(filepath.Dir(archive(t)), "..", "build", runtime.GOARCH)
	if _, err := os.Stat(filepath.Join(built, "coracle-installed")); err != nil {
		t.Skipf("what the image was made of is not there: %v", err)
	}
	dir := t.TempDir()
	command(t, "tar", "--create", "--file", filepath.Join(dir, "context.tar"), "--directory", repository,
		"--exclude=./build", "--exclude=./dist", "--exclude=./.git", "--exclude=node_modules", ".")
	e.Import(standIn(t, dir, built), "coracle.test/builder:1", "--change", "ENV SKIP_BUILD=1 PATH=/bin")
	e.Build(filepath.Join(dir, "context.tar"), "coracle.test/built:1", "--build-arg", "BUILDER=coracle.test/builder:1", "--build-arg", "NODE=coracle.test/builder:1")

	if got, want := config(t, e, "coracle.test/built:1"), config(t, e, "coracle"); !reflect.DeepEqual(got, want) {
		t.Errorf("docker build makes an image with\n%v\nscripts/image one with\n%v", got, want)
	}
	for _, args := range [][]string{{"version"}, {"--help"}} {
		of := func(image string) string { return e.Docker(append([]string{"run", "--rm", image}, args...)...) }
		if got, want := of("coracle.test/built:1"), of("coracle"); got != want {
			t.Errorf("coracle %s says %s, not %s", args, got, want)
		}
	}
	got, want := files(e, "coracle.test/built:1"), files(e, "coracle")
	for i, list := range [][]string{got, want} {
		for _, file := range list {
			if other := [][]string{want, got}[i]; !slices.Contains(other, file) {
				t.Errorf("only in the image of %s: %s", []string{"docker build", "scripts/image"}[i], file)
			}
		}
	}
}

// standIn is a root file system in which scripts/image finds all built files.
func standIn(t *testing.T, dir, built string) string {
	t.Helper()
	root := filepath.Join(dir, "root")
	to := filepath.Join(root, "src", "build", filepath.Base(built))
	for _, d := range []string{filepath.Join(root, "bin"), filepath.Join(root, "usr/local"), to} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "cp", "/bin/busybox", filepath.Join(root, "bin"))
	for _, applet := range []string{"cat", "chmod", "cp", "dirname", "echo", "ln", "mkdir", "printf", "rm", "sed", "sh", "uname"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{"payload", "coracle-installed", "files.json", "version", "ca-certificates.crt", "ca-certificates.copyright"} {
		command(t, "cp", "--archive", filepath.Join(built, part), to)
	}
	out := filepath.Join(dir, "root.tar")
	command(t, "tar", "--create", "--file", out, "--owner=0", "--group=0", "--directory", root, ".")
	return out
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// config is the configuration of an image.
func config(t *testing.T, e *engine.Engine, image string) map[string]any {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(e.Docker("image", "inspect", "--format", "{{json .Config}}", image)), &all); err != nil {
		t.Fatal(err)
	}
	for key, value := range all { // fields that the builder set, and fields without a value
		if key == "Image" || value == nil || reflect.ValueOf(value).IsZero() {
			delete(all, key)
		}
	}
	return all
}

// files lists the files of an image, with modes and owners.
func files(e *engine.Engine, image string) []string {
	out := e.Docker("run", "--rm", "--network", "none", "--entrypoint", "/usr/lib/coracle/busybox", image, "find",
		"/etc/passwd", "/etc/group", "/etc/os-release", "/etc/ssl", "/root", "/tmp", "/usr", "/var",
		"-exec", "/usr/lib/coracle/busybox", "stat", "-c", "%A %u %g %n", "{}", ";")
	return strings.Split(out, "\n")
}
