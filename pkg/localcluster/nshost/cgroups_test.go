package nshost

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestControllers(t *testing.T) {
	for _, c := range []struct{ fstype, options, want string }{
		{"cgroup2", "rw,nosuid,nodev,noexec,relatime,nsdelegate", ""},
		{"cgroup", "rw,nosuid,nodev,noexec,relatime,cpu,cpuacct", "cpu,cpuacct"},
		{"cgroup", "rw,relatime,xattr,name=systemd", "name=systemd"},
	} {
		if got := controllers(c.fstype, c.options); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.fstype, c.options, got, c.want)
		}
	}
}

// TestJoinBusyCgroup puts a process into a host whose root cgroup hands controllers down, as it does under cgroup v2
// once coracle runs there.
func TestJoinBusyCgroup(t *testing.T) {
	i := slices.IndexFunc(hierarchies(), func(h hierarchy) bool { return h.fstype == "cgroup2" })
	if os.Geteuid() != 0 || i < 0 {
		t.Skip("this needs root, and cgroup v2")
	}
	h, name := hierarchies()[i], fmt.Sprintf("vhost-test-%d/host", os.Getpid())
	if err := makeCgroups(name); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := RemoveCgroups(filepath.Dir(name)); err != nil {
			t.Error(err)
		}
	}()
	if err := os.Mkdir(filepath.Join(h.dir(name), initCgroup), 0o755); err != nil {
		t.Fatal(err)
	}
	h.enableControllers(name)
	if handed, err := os.ReadFile(filepath.Join(h.dir(name), "cgroup.subtree_control")); err != nil || len(strings.TrimSpace(string(handed))) == 0 {
		t.Skipf("cgroup v2 has no controllers on this machine (%v)", err)
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = joinCgroups(name, cmd.Process.Pid)
	got, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	in.Close()
	_ = cmd.Wait()
	if err != nil || !strings.Contains(string(got), name+"/init") {
		t.Errorf("it is in %s (%v)", got, err)
	}
}

func TestOwnCgroups(t *testing.T) {
	dirs, err := ownCgroups()
	if err != nil || len(dirs) == 0 {
		t.Skipf("no cgroups here (%v)", err)
	}
	for _, dir := range dirs {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || !slices.Contains(strings.Fields(string(procs)), fmt.Sprint(os.Getpid())) {
			t.Errorf("this process is not in %s (%v)", dir, err)
		}
	}
}
