package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestNest plays a container: a cgroup below the root that holds a process.
func TestNest(t *testing.T) {
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
		if err := Nest(dir); err != nil {
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
