package hosts

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cgroup is the directory of the cgroup, in a hierarchy of cgroup v1, of everything that runs on the host, pods included.
func (h *Host) cgroup(controller string) string {
	h.t.Helper()
	dir := filepath.Join("/sys/fs/cgroup", controller, h.vm.Cgroup)
	if _, err := os.Stat(dir); err != nil {
		h.t.Skipf("hosts are limited with cgroup v1, and this machine has no hierarchy for %s", controller)
	}
	return dir
}

func (h *Host) setCgroup(controller, file string, value int64) {
	h.t.Helper()
	h.must(os.WriteFile(filepath.Join(h.cgroup(controller), file), []byte(strconv.FormatInt(value, 10)), 0o644))
}

// LimitCPU lets everything on the host together use a part of a core, until the host is killed.
func (h *Host) LimitCPU(cores float64) {
	h.t.Helper()
	const period = 100_000 // microseconds, the kernel's default
	h.setCgroup("cpu", "cpu.cfs_period_us", period)
	h.setCgroup("cpu", "cpu.cfs_quota_us", int64(cores*period))
}

// RunLast moves a process into the host's cgroup for the processor, and gives everything in it, until the host is killed, only what other hosts leave.
func (h *Host) RunLast(pid int) {
	h.t.Helper()
	const fewest = 2 // shares, of 1024 that other cgroups have
	h.setCgroup("cpu", "cpu.shares", fewest)
	h.setCgroup("cpu", "cgroup.procs", int64(pid))
}

// CPUTime is the processor time that everything on the host together has used.
func (h *Host) CPUTime() time.Duration {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.cgroup("cpuacct"), "cpuacct.usage"))
	h.must(err)
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	h.must(err)
	return time.Duration(n)
}

// LimitMemory limits the memory of everything on the host together, with the files that the kernel keeps in memory for it and can drop,
// until the host is killed.
func (h *Host) LimitMemory(bytes int64) {
	h.t.Helper()
	h.setCgroup("memory", "memory.limit_in_bytes", bytes)
}

// Memory is what the host uses of its memory now, without the files that the kernel can drop.
func (h *Host) Memory() int64 {
	h.t.Helper()
	stat := h.cgroupStat("memory", "memory.stat")
	return stat["total_rss"] + stat["total_shmem"]
}

// OOMKills is how many processes on the host the kernel has killed for memory, except in cgroups that are gone.
func (h *Host) OOMKills() (n int64) {
	h.t.Helper()
	root := h.cgroup("memory")
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() { // a cgroup that was just removed has killed nothing that is left
			n += readStat(filepath.Join(path, "memory.oom_control"))["oom_kill"]
		}
		return nil
	})
	return n
}

func (h *Host) cgroupStat(controller, file string) map[string]int64 {
	h.t.Helper()
	path := filepath.Join(h.cgroup(controller), file)
	stat := readStat(path)
	if len(stat) == 0 {
		h.t.Fatalf("%s has no figures", path)
	}
	return stat
}

// readStat reads a file with a name and a number on each line.
func readStat(path string) map[string]int64 {
	out := map[string]int64{}
	data, _ := os.ReadFile(path)
	for line := range strings.Lines(string(data)) {
		var name string
		var n int64
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			out[name] = n
		}
	}
	return out
}
