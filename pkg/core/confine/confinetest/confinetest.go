// Package confinetest is for tests of processes that change their user.
package confinetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Dir returns a temporary directory that every user can reach. The test is skipped unless it runs as root, which such a process needs at first.
func Dir(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	for dir := root; dir != os.TempDir(); dir = filepath.Dir(dir) { // that one is everybody's, and its mode is not the test's business
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
