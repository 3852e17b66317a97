// Package ondisk tells tests whether a file is on disk, which nobody else sees before the power fails.
package ondisk

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Check fails a test if what was written to a file still waits in memory. It skips the test where the kernel does not tell (before
// Linux 6.5), and where files never wait, as in a tmpfs.
func Check(t *testing.T, path string) {
	t.Helper()
	other := filepath.Join(t.TempDir(), "not-synced")
	if err := os.WriteFile(other, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if !waits(t, other) {
		t.Skip("here files are on disk at once, or never")
	}
	if waits(t, path) {
		t.Errorf("%s is not on disk", path)
	}
}

// waits reports whether pages of a file are still to be written.
func waits(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var stat unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &stat, 0); err != nil {
		t.Skipf("asking the kernel which pages of a file wait: %v", err)
	}
	return stat.Dirty+stat.Writeback > 0
}
