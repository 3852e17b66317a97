package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNest plays a container: a cgroup below the root that holds a process.
func TestDelegateCgroups(t *testing.T) {
	root := "/sys/fs/cgroup"
	if !cgroupV2(root) {
		root = "/sys/fs/cgroup/unified"
	}
	dir := filepath.Join(root, fmt.Sprintf("coracle-test-%d", os.Getpid()))
	if !cgroupV2(root) || os.Mkdir(dir, 0o755) != nil {
		t.Skip("needs root and cgroup v2")
	}
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		sleep.Process.Kill()
		sleep.Wait()
		os.Remove(filepath.Join(dir, "init"))
		os.Remove(dir)
	})
	pid := fmt.Sprint(sleep.Process.Pid)
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o644); err != nil {
		t.Skip("cgroups may not be changed here: ", err)
	}
	for range 2 { // a second time changes nothing
		if err := DelegateCgroups(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(filepath.Join(dir, "cgroup.procs")); got != "" {
		t.Errorf("processes %s stayed", got)
	}
	if got := read(filepath.Join(dir, "init", "cgroup.procs")); got != pid {
		t.Errorf("init holds %q, want %s", got, pid)
	}
	have := read(filepath.Join(dir, "cgroup.controllers"))
	if got := read(filepath.Join(dir, "cgroup.subtree_control")); got != have {
		t.Errorf("of the controllers %q only %q are handed down", have, got)
	}
}

// TestNestFakeTree plays cgroup v2 with plain files: what a kernel would refuse, and what is written where.
func TestDelegateCgroupsFakeTree(t *testing.T) {
	for name, c := range map[string]struct {
		procs, handed string // cgroup.procs and cgroup.subtree_control before
		prepare       func(root string) error
		wantHanded    string
		wantErr       string
	}{
		"nobody there, nothing handed down": {"", "", nil, "+cpu +memory +pids", ""},
		"done already":                      {"", "cpu memory pids", nil, "cpu memory pids", ""},
		"processes that cannot be moved": {"1 7", "", func(root string) error { // these stay where they are, as if new ones came
			return os.MkdirAll(filepath.Join(root, "init"), 0o755)
		}, "", "new processes keep appearing there; give the container a writable /sys/fs/cgroup"},
		"a file in the way": {"1", "", func(root string) error {
			return os.WriteFile(filepath.Join(root, "init"), nil, 0o644)
		}, "", "moving processes out of the container's root cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range map[string]string{"cgroup.type": "domain\n", "cgroup.controllers": "cpu memory pids\n",
				"cgroup.procs": c.procs, "cgroup.subtree_control": c.handed} {
				if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if c.prepare != nil {
				if err := c.prepare(root); err != nil {
					t.Fatal(err)
				}
			}
			err := delegate(root)
			if c.wantErr == "" && err != nil || c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("got %v, want %q", err, c.wantErr)
			}
			if got := read(filepath.Join(root, "cgroup.subtree_control")); got != c.wantHanded {
				t.Errorf("handed down are %q, want %q", got, c.wantHanded)
			}
		})
	}
}
