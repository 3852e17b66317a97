// Package modules builds programs for tests that are modules of their own below test, so that the product links none of their modules.
package modules

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Build builds the program test/NAME and returns its path, build/NAME; an up-to-date program is kept.
func Build(t testing.TB, name string) string {
	t.Helper()
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("building %s: %v", name, err)
	}
	top := filepath.Dir(strings.TrimSpace(string(mod)))
	program := filepath.Join(top, "build", name)
	cmd := exec.Command("go", "build", "-trimpath", "-o", program, ".")
	cmd.Dir, cmd.Env = filepath.Join(top, "test", name), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, out)
	}
	return program
}
