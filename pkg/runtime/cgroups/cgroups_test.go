package cgroups

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3"
	v1stats "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2stats "github.com/containerd/cgroups/v3/cgroup2/stats"
)

func TestPath(t *testing.T) {
	for specified, want := range map[string]string{
		"/kubepods/besteffort/podab/0123":                    "/kubepods/besteffort/podab/0123",
		"kubepods-besteffort-podab_c.slice:cri-containerd:1": "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podab_c.slice/cri-containerd-1.scope",
		"system.slice:coracle:2":                             "/system.slice/coracle-2.scope",
		"":                                                   "",
		"relative/path":                                      "",
	} {
		if got := Path(specified); got != want {
			t.Errorf("the path of %q is %q, want %q", specified, got, want)
		}
	}
}

// TestReader reads what a busy process uses.
func TestReader(t *testing.T) {
	path := fmt.Sprintf("/coracle-test-%d", os.Getpid())
	hierarchies := []string{"cpu", "cpuacct", "memory", "pids"}
	if cgroups.Mode() == cgroups.Unified {
		hierarchies = []string{""}
	}
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
		for _, h := range hierarchies {
			if err := os.Remove(filepath.Join(Root, h, path)); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, h := range hierarchies {
		if _, err := Reader(path); err == nil {
			t.Errorf("there is a reader before the cgroup is in the hierarchy %q", h)
		}
		dir := filepath.Join(Root, h, path)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, busy.Process.Pid), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read, err := Reader(path)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stats, err := read()
		if err != nil {
			t.Fatal(err)
		}
		processor, processes, memory := uint64(0), uint64(0), false
		switch s := stats.(type) {
		case *v1stats.Metrics:
			processor, processes, memory = s.CPU.Usage.Total, s.Pids.Current, s.Memory.Usage.Limit > 0
		case *v2stats.Metrics:
			processor, processes, memory = s.CPU.UsageUsec, s.Pids.Current, s.Memory.Usage > 0
		default:
			t.Fatalf("the statistics are a %T", stats)
		}
		if processor > 0 && processes == 1 && memory {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("processor: %d, processes: %d, memory: %t", processor, processes, memory)
		}
	}
}
