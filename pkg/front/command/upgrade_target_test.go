package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNotInstalled: only where coracle is what a container runs, upgrade says that this is a container.
func TestNotInstalled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		first     string // the program of process 1
		docker    bool
		container bool
	}{
		"machine with systemd":           {"/usr/lib/systemd/systemd", false, false},
		"machine with another init":      {"/sbin/runit", false, false},
		"booted container, another init": {"/sbin/runit", true, false},
		"coracle is the init":            {self, false, true},
		"coracle below Docker's init":    {"/sbin/docker-init", true, true},
		"a machine's own tini":           {"/usr/bin/tini", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			err := errors.Join(os.MkdirAll(filepath.Join(root, "proc/1"), 0o755), os.Symlink(tt.first, filepath.Join(root, "proc/1/exe")))
			if tt.docker {
				err = errors.Join(err, os.WriteFile(filepath.Join(root, ".dockerenv"), nil, 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			text := notInstalled(root).Error()
			if got := strings.Contains(text, "this is a container"); got != tt.container {
				t.Errorf("says %q", text)
			}
			if got := strings.Contains(text, "One that you start yourself"); got == tt.container {
				t.Errorf("says %q", text)
			}
		})
	}
}
