package containerd

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestKeptSeccompPrograms: runc keeps the program of a seccomp profile, uses it for the next container, and makes it again where the file is damaged.
func TestKeptSeccompPrograms(t *testing.T) {
	payload, err := filepath.Abs(filepath.Join("..", "..", "..", "build", runtime.GOARCH, "payload"))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, root := t.TempDir(), t.TempDir()
	example := exec.Command(filepath.Join(payload, "runc"), "spec")
	example.Dir = dir
	if out, err := example.CombinedOutput(); err != nil {
		t.Fatalf("the programs of the payload are needed, which scripts/build makes: %v: %s", err, out)
	}
	var spec specs.Spec
	edit(t, filepath.Join(dir, "config.json"), &spec, func() {
		// In another user namespace it would have all capabilities, so the profile refuses to make one.
		spec.Process.Terminal, spec.Process.Args = false, []string{"/busybox", "sh", "-c", "/busybox grep Seccomp: /proc/self/status; /busybox unshare -U /busybox echo made || /busybox echo refused"}
		spec.Linux.Seccomp = seccomp.DefaultProfile(&spec)
	})
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(payload, "busybox"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "rootfs", "busybox"), data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	run := func(what, want string) (file string, data []byte) {
		t.Helper()
		cmd := exec.Command(filepath.Join(payload, "runc"), "--root", root, "run", "--bundle", dir, "one")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\t2\n") || !strings.Contains(string(out), want+"\n") {
			t.Errorf("%s: %v: want a filter and %s, got\n%s", what, err, want, out)
		}
		files, err := filepath.Glob(filepath.Join(root, "seccomp-*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: files: %v, %v", what, files, err)
		}
		if data, err = os.ReadFile(files[0]); err != nil {
			t.Fatal(err)
		}
		return files[0], data
	}
	file, made := run("without a file", "refused")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	run("with the file", "refused")

	allow := binary.LittleEndian.AppendUint64(nil, 0) // no flags, and one instruction
	allow = binary.LittleEndian.AppendUint16(allow, unix.BPF_RET|unix.BPF_K)
	allow = binary.LittleEndian.AppendUint32(append(allow, 0, 0), unix.SECCOMP_RET_ALLOW)
	sum := sha256.Sum256(allow)
	if err := os.WriteFile(file, append(sum[:], allow...), 0o600); err != nil {
		t.Fatal(err)
	}
	run("with the program of another profile", "made") // it is the file that counts

	for _, damaged := range [][]byte{nil, make([]byte, len(made)), made[:len(made)-8]} {
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		// The order of architectures in it is another each time.
		_, again := run("with a damaged file", "refused")
		if len(again) != len(made) || sha256.Sum256(again[sha256.Size:]) != [sha256.Size]byte(again) {
			t.Error("a damaged file is not made again")
		}
	}
}

// edit changes a file of JSON.
func edit(t *testing.T, file string, value any, change func()) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	if err == nil {
		change()
		data, err = json.Marshal(value)
	}
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
