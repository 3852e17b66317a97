package handlers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a root directory that has programs.
func machine(t *testing.T, programs ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range programs {
		file := filepath.Join(root, p)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFindEach(t *testing.T) {
	for _, h := range Known() {
		path := "/usr/bin/" + h.Program
		found, wrong := Find(machine(t, path, "/usr/local/bin/"+h.Program, "/usr/bin/runc"))
		h.Program = path
		if wrong != nil || len(found) != 1 || found[0] != h || !IsKnown(h.Name) {
			t.Errorf("%s: found %v, %v", h.Name, found, wrong)
		}
	}
	if IsKnown("runc") || IsKnown("") {
		t.Error("the table has more than it should")
	}
}

// TestUnsafe tries programs that somebody else than root could replace, directly or through a link.
func TestUnsafe(t *testing.T) {
	chmod := func(path string, mode os.FileMode) func(string) error {
		return func(root string) error { return os.Chmod(filepath.Join(root, path), mode) }
	}
	link := func(target, at string) func(string) error {
		return func(root string) error {
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(at)), 0o755); err != nil {
				return err
			}
			return os.Symlink(target, filepath.Join(root, at))
		}
	}
	for _, tt := range []struct {
		name    string
		program string
		change  []func(string) error
		found   string
		wrong   string // "": none
	}{
		{name: "safe", program: "/usr/bin/crun", found: "/usr/bin/crun"},
		{name: "earlier directory", program: "/usr/sbin/crun", change: []func(string) error{link("../sbin/crun", "/usr/bin/crun")}, found: "/usr/bin/crun"},
		{name: "link", program: "/opt/crun/crun", change: []func(string) error{link("/opt/crun/crun", "/usr/local/bin/crun")}, found: "/usr/local/bin/crun"},
		{name: "link of a directory", program: "/opt/v1/kata/bin/containerd-shim-kata-v2", change: []func(string) error{link("v1/kata", "/opt/kata")}, found: "/opt/kata/bin/containerd-shim-kata-v2"},
		{name: "dangling link", change: []func(string) error{link("/nowhere", "/usr/bin/crun")}},
		{name: "writable program", program: "/usr/bin/crun", change: []func(string) error{chmod("/usr/bin/crun", 0o757)}, wrong: "chmod go-w /usr/bin/crun"},
		{name: "writable directory", program: "/usr/local/bin/crun", change: []func(string) error{chmod("/usr/local", 0o777|os.ModeSticky)}, wrong: "chmod go-w /usr/local"},
		{name: "link through a writable directory", program: "/opt/a/crun", change: []func(string) error{link("/opt/a/crun", "/tmp/x/crun"), chmod("/tmp/x", 0o777), link("/tmp/x/crun", "/usr/bin/crun")},
			wrong: "chmod go-w /tmp/x"},
		{name: "not executable", program: "/usr/bin/crun", change: []func(string) error{chmod("/usr/bin/crun", 0o644)}, wrong: "not a program"},
		{name: "loop", change: []func(string) error{link("crun", "/usr/bin/crun")}, wrong: "loop"},
		{name: "another owner", program: "/usr/bin/crun", change: []func(string) error{func(root string) error { return os.Lchown(filepath.Join(root, "/usr/bin/crun"), 1000, 0) }}, wrong: "user 1000"},
		{name: "another group", program: "/usr/bin/crun", change: []func(string) error{func(root string) error { return os.Lchown(filepath.Join(root, "/usr/bin"), 0, 50) },
			chmod("/usr/bin", 0o775)}, wrong: "chmod go-w /usr/bin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.HasPrefix(tt.name, "another") && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			root := machine(t)
			if tt.program != "" {
				root = machine(t, tt.program)
			}
			for _, change := range tt.change {
				if err := change(root); err != nil {
					t.Fatal(err)
				}
			}
			found, wrong := Find(root)
			var paths string
			for _, h := range found {
				paths += h.Program
			}
			if paths != tt.found || (wrong == nil) != (tt.wrong == "") || !strings.Contains(fmt.Sprint(wrong), tt.wrong) {
				t.Errorf("found %q, %v", paths, wrong)
			}
		})
	}
}
