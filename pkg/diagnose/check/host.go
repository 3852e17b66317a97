package check

import (
	"bufio"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

func otherCoracle(_ context.Context, m *Machine) []Verdict {
	front, ok, err := state.Read(m.Config.Dirs, state.Front)
	switch {
	case err != nil:
		return Warnf("use sudo, or check whether the file is damaged", "the state of coracle cannot be read: %v", err)
	case ok && front.Alive():
		return Okf("coracle %s runs here (process %d); its ports and directories count as free", front.Version, front.PID)
	}
	return Okf("none runs with %s and %s", m.Config.Dirs.Data, m.Config.Dirs.Run)
}

// oldest is the oldest kernel that has all that kube-proxy's nftables rules need.
var oldest = [2]int{5, 13}

func kernel(_ context.Context, _ *Machine) []Verdict {
	return judgeKernel(release())
}

func judgeKernel(release string) []Verdict {
	var have [2]int
	if n, _ := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); n < 2 {
		return Warnf("use Linux 5.13 or newer", "the kernel's version %q cannot be read", release)
	}
	if have[0] < oldest[0] || have[0] == oldest[0] && have[1] < oldest[1] {
		return Failf("upgrade the system: Services are made with rules that need Linux 5.13", "Linux %s is too old", release)
	}
	return Okf("Linux %s (at least 5.13 is needed)", release)
}

func processor(_ context.Context, m *Machine) []Verdict {
	switch runtime.GOARCH {
	case "amd64", "arm64":
	default:
		return Warnf("use amd64 or arm64", "coracle is not tested on %s", runtime.GOARCH)
	}
	info := m.read("/proc/cpuinfo")
	aes := strings.Contains(info, " aes")
	text := fmt.Sprintf("%d of %s", runtime.NumCPU(), runtime.GOARCH)
	if !aes {
		text += ", without AES instructions: TLS needs more CPU time"
	}
	return Okf("%s", text)
}

// The memory that coracle needs on an idle machine, and with room for pods and the page cache.
var (
	leastMemory   = map[config.Role]int64{config.Server: 384 << 20, config.Agent: 128 << 20}
	comfortMemory = map[config.Role]int64{config.Server: 896 << 20, config.Agent: 320 << 20}
)

func memory(_ context.Context, m *Machine) []Verdict {
	total, available, swap := meminfo(m.read("/proc/meminfo"))
	return judgeMemory(m.Config.Role, m.Running, total, available, swap, m.memoryLimit())
}

func judgeMemory(role config.Role, running bool, total, available, swap, limit int64) []Verdict {
	const mib = 1 << 20
	have, where := total, "the machine has"
	if limit > 0 && limit < total {
		have, where = limit, "the cgroup that this runs in allows"
	}
	text := fmt.Sprintf("%s %d MiB, of which %d MiB are available", where, have/mib, min(available, have)/mib)
	if swap > 0 {
		text += "; there is swap, which pods cannot use"
	}
	switch least, comfort := leastMemory[role], comfortMemory[role]; {
	case have < least:
		return Failf(fmt.Sprintf("give it at least %d MiB", comfort/mib), "%s: too little for coracle %s", text, role)
	case have < comfort:
		return Warnf(fmt.Sprintf("give it at least %d MiB", comfort/mib), "%s: little for coracle %s and pods", text, role)
	case !running && available < least, running && available < 100*mib:
		return Warnf("stop something, or add memory: the kubelet evicts pods below 100 MiB", "%s", text)
	}
	return Okf("%s", text)
}

// meminfo reads the text of /proc/meminfo. The results are in bytes.
func meminfo(text string) (total, available, swap int64) {
	into := map[string]*int64{"MemTotal:": &total, "MemAvailable:": &available, "SwapTotal:": &swap}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 1 && into[f[0]] != nil {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			*into[f[0]] = n << 10
		}
	}
	return total, available, swap
}

// memoryLimit returns the memory limit of the cgroup of this process in bytes; 0 if it has none.
func (m *Machine) memoryLimit() (limit int64) {
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		n, err := strconv.ParseInt(m.read(file), 10, 64)
		if err == nil && n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
}

func limits(_ context.Context, m *Machine) []Verdict {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return Warnf("", "the limit of open files cannot be read: %v", err)
	}
	pids, _ := strconv.ParseInt(m.read("/sys/fs/cgroup/pids.max"), 10, 64)
	most, _ := strconv.ParseInt(m.read("/proc/sys/kernel/pid_max"), 10, 64)
	return judgeLimits(files.Max, pids, most)
}

// judgeLimits judges the limits of open files, and of processes in this cgroup (0 for none) and on the machine.
func judgeLimits(files uint64, pids, most int64) (out []Verdict) {
	const leastFiles, leastPids, leastMost = 65536, 2048, 8192
	if files < leastFiles {
		out = append(out, Warnf("raise it: LimitNOFILE=1048576 in a systemd unit, --ulimit nofile=1048576 for docker run",
			"a process may open %d files, which many pods and connections exceed", files)...)
	}
	if pids > 0 && pids < leastPids {
		out = append(out, Warnf("raise it: TasksMax=infinity in a systemd unit, --pids-limit=-1 for docker run",
			"the cgroup that this runs in allows %d processes and threads", pids)...)
	}
	if most > 0 && most < leastMost {
		out = append(out, Warnf("sysctl -w kernel.pid_max=4194304", "the machine allows %d processes and threads", most)...)
	}
	return Else(out, Okf("%d open files for a process", files))
}

// processes returns the processes of the machine; none if they cannot be read.
func (m *Machine) processes() []process.Process {
	all, _ := process.All(m.path("/proc"))
	return all
}

// fields calls visit with the fields of each line of a file, except comments.
func (m *Machine) fields(name string, visit func([]string)) {
	for lines := bufio.NewScanner(strings.NewReader(m.read(name))); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			visit(f)
		}
	}
}
