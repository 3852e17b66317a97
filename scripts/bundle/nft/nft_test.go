package nft

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGather runs the collected nft with only the collected files.
func TestGather(t *testing.T) {
	if _, err := os.Stat("/usr/sbin/nft"); err != nil {
		t.Skip("no nft on this machine")
	}
	dir := filepath.Join(t.TempDir(), "nft.d")
	if err := Gather("/", dir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "ld.so"), "--inhibit-cache", "--library-path", dir, filepath.Join(dir, "nft"), "--version")
	cmd.Env = []string{"LD_DEBUG=libs"}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "nftables v") {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if _, path, ok := strings.Cut(line, "calling init: "); ok && !strings.HasPrefix(path, dir) {
			t.Errorf("a library of this machine was loaded: %s", path)
		}
	}
}

// TestHostFiles runs nft with its launcher on a host whose files would break it.
func TestHostFiles(t *testing.T) {
	if _, err := os.Stat("/usr/sbin/nft"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs nft and root")
	}
	parts := t.TempDir()
	if err := Gather("/", filepath.Join(parts, "nft.d")); err != nil {
		t.Fatal(err)
	}
	compile(t, "nft.c", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-builtin", "-o", filepath.Join(parts, "nft"))
	compile(t, "names.c", "-shared", "-fPIC", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-o", filepath.Join(parts, "nft.d/names.so"))
	cmd := exec.Command("unshare", "--mount", "--net", "sh", "-euc", `
		cd "$1"
		mount --bind etc /etc
		export LD_PRELOAD=/etc/nothing.so
		./nft "add table ip t; add map ip t m { type ipv4_addr . inet_proto : mark; }; add element ip t m { 192.0.2.1 . tcp : 0x7 }"
		./nft "add chain ip t c; add rule ip t c meta skuid 7 meta skgid 7"
		./nft list table ip t`, "sh", parts)
	etc := filepath.Join(parts, "etc")
	for name, content := range map[string]string{
		"ld.so.preload": "/etc/nothing.so\n", "nsswitch.conf": "protocols: db\npasswd: files\ngroup: files\n", "passwd": "7:x:8:8::/:\n", "group": "7:x:8:\n",
		"protocols": "cpt 6\n", "iproute2/rt_marks": "7 seven\n",
	} {
		path := filepath.Join(etc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "elements = { 192.0.2.1 . tcp : 0x00000007 }") ||
		!strings.Contains(string(out), "meta skuid 7 meta skgid 7") || strings.Contains(string(out), "ld.so") {
		t.Errorf("%v: %s", err, out)
	}
}

// compile runs the C compiler on a file of scripts/launcher.
func compile(t *testing.T, source string, args ...string) {
	t.Helper()
	cmd := exec.Command("gcc", append(args, filepath.Join("../../launcher", source))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compiling %s: %v: %s", source, err, out)
	}
}

func TestGatherWithoutNFT(t *testing.T) {
	if err := Gather(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "package nftables") {
		t.Errorf("got %v", err)
	}
}
