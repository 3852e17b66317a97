package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/typeurl/v2"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// TestOutsideScope: only shims of this containerd that are not in the scope yet, and that are not in a container.
func TestOutsideScope(t *testing.T) {
	proc := t.TempDir()
	c := Containerd{Shim: "/bin/shim", Socket: "/run/c.sock"}
	link := func(pid, namespace string) {
		dir := filepath.Join(proc, pid, "ns")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(namespace, filepath.Join(dir, "mnt")); err != nil {
			t.Fatal(err)
		}
	}
	link("self", "mnt:[1]")
	var all []process.Process
	for i, p := range []struct{ args, cgroups, namespace string }{
		{"/bin/shim -id a -address /run/c.sock", "0::/system.slice/coracle.service\n", "mnt:[1]"},
		{"/bin/shim -id b -address /run/c.sock", "0::/system.slice/coracle-pods.scope\n", "mnt:[1]"},
		{"/bin/shim -id c -address /run/c.sock", "5:memory:/system.slice/coracle.service\n1:name=systemd:/system.slice/coracle.service\n", "mnt:[1]"},
		{"/bin/shim -id d -address /run/c.sock", "0::/system.slice/coracle.service\n", "mnt:[2]"},
		{"/bin/shim -id e -address /run/other.sock", "0::/system.slice/coracle.service\n", "mnt:[1]"},
		{"/bin/coracle-core node", "0::/system.slice/coracle.service\n", "mnt:[1]"},
	} {
		pid := 100 + i
		link(fmt.Sprint(pid), p.namespace)
		if err := os.WriteFile(filepath.Join(proc, fmt.Sprint(pid), "cgroup"), []byte(p.cgroups), 0o644); err != nil {
			t.Fatal(err)
		}
		all = append(all, process.Process{PID: pid, Args: strings.Fields(p.args)})
	}
	if got, want := c.outsideScope(proc, all), []uint32{100, 102}; !slices.Equal(got, want) {
		t.Errorf("%v are moved, not %v", got, want)
	}
}

// TestKeeperOf reads containerd's event: the shim is the parent of the task's first process, or has the task's thread.
func TestKeeperOf(t *testing.T) {
	event, err := typeurl.MarshalAny(&events.TaskCreate{ContainerID: "a", Pid: uint32(os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := keeperOf(event); err != nil || len(got) != 1 || got[0].PID != os.Getppid() || len(got[0].Args) == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	others := 0
	for _, thread := range threads {
		tid, _ := strconv.Atoi(thread.Name())
		if tid == os.Getpid() {
			continue
		}
		if event, err = typeurl.MarshalAny(&events.TaskCreate{ContainerID: "a", Pid: uint32(tid)}); err != nil {
			t.Fatal(err)
		}
		if got, err := keeperOf(event); err == nil && len(got) == 1 && got[0].PID == os.Getpid() {
			others++ // or it has just ended
		}
	}
	if others == 0 {
		t.Errorf("of none of %d threads", len(threads))
	}
	if event, err = typeurl.MarshalAny(&events.TaskCreate{Pid: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if got, err := keeperOf(event); err != nil || len(got) != 0 {
		t.Errorf("of a process that has ended: %+v, %v", got, err)
	}
	if event, err = typeurl.MarshalAny(&events.TaskExit{}); err != nil {
		t.Fatal(err)
	}
	if _, err := keeperOf(event); err == nil {
		t.Error("another event is understood")
	}
}
