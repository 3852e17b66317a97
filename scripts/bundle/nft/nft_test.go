package nft

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGather runs what was gathered with nothing but what was gathered.
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

func TestGatherWithoutNFT(t *testing.T) {
	if err := Gather(t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "package nftables") {
		t.Errorf("got %v", err)
	}
}
