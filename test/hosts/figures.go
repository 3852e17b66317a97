package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/test/growth"
)

// Usage is what the server's own processes use, by process: memory that is theirs alone, descriptors and threads.
func (s *Server) Usage() growth.Figures {
	s.Host.t.Helper()
	f := growth.Figures{}
	for _, p := range s.Processes() {
		proc := fmt.Sprintf("/proc/%d/", p.PID)
		status, err := os.ReadFile(proc + "status")
		fds, err2 := os.ReadDir(proc + "fd")
		if err != nil || err2 != nil {
			continue // it has just ended
		}
		f["descriptors of "+p.Name] += float64(len(fds))
		for line := range strings.Lines(string(status)) {
			var n float64
			if _, err := fmt.Sscanf(line, "RssAnon: %f kB", &n); err == nil {
				f[growth.Bytes+"memory of "+p.Name] += 1024 * n
			}
			if _, err := fmt.Sscanf(line, "Threads: %f", &n); err == nil {
				f["threads of "+p.Name] += n
			}
		}
	}
	return f
}

// limits are what grows to a limit and not beyond: etcd keeps five files of its log of 64 MB each, makes one in advance, and keeps five snapshots;
// coracle's log has 16 MiB; three files for the last words of a container are kept at a start, which adds one.
func limits(containers float64) growth.Figures {
	return growth.Figures{"files of etcd": 6 + 1 + 5 + 3, growth.Bytes + "etcd": 7*64<<20 + 128<<20, "files of log": 8, growth.Bytes + "log": 17 << 20,
		"files of last words": 4 * max(containers, 10), growth.Bytes + "last words": 1 << 20}
}

// Figures count what coracle and its pods leave on a host that runs it: files, and objects of the kernel. The test fails if what may grow to a limit
// exceeds it; that is not among the figures.
func (h *Host) Figures() growth.Figures {
	h.t.Helper()
	f := growth.Figures{
		"mounts":     h.lines("cat", "/proc/self/mountinfo"),
		"interfaces": h.lines("ip", "-o", "link"),
		"namespaces": h.lines("sh", "-c", `find /proc/[0-9]*/ns -type l -printf '%l\n' 2>/dev/null | sort -u`), // lsns fails when a process ends meanwhile
		"processes":  h.lines("sh", "-c", `printf '%s\n' /proc/[0-9]*`),
		"shims":      h.lines("sh", "-c", "pgrep -x containerd-shim || true"),
		"cgroups":    h.lines("sh", "-c", "find /sys/fs/cgroup -type d 2>/dev/null || true"), // some go while it looks
		"rules":      h.lines("/var/lib/coracle/bin/nft", "list", "ruleset"),
		"leases":     h.lines("sh", "-c", "find /var/lib/coracle/node/cni -type f -name '*[.:]*' || true"),
	}
	f.Add(h.files("data", "/var/lib/coracle"))
	f.Add(h.files("the kubelet", "/var/lib/kubelet"))
	f.Add(h.files("run", "/run"))
	f.Add(h.files("logs of pods", "/var/log"))
	f.Add(h.files("configuration", "/etc"))
	for name, most := range limits(h.lines("sh", "-c", "find /var/lib/kubelet/pods -mindepth 3 -maxdepth 3 -path '*/containers/*' 2>/dev/null || true")) {
		if f[name] > most {
			h.t.Errorf("%s: %s: %.0f, of at most %.0f", h.Name, name, f[name], most)
		}
		delete(f, name)
	}
	return f
}

// lastWords reports whether a file of the kubelet is for the last words of a container.
func lastWords(path string) bool {
	ok, _ := filepath.Match("pods/*/containers/*/*", path)
	return ok
}

// lines is the number of lines that a command prints on the host.
func (h *Host) lines(name string, args ...string) float64 {
	h.t.Helper()
	return float64(strings.Count(h.Run(name, args...), "\n"))
}

// files counts the files in a directory and their bytes.
func (h *Host) files(what, dir string) growth.Figures {
	h.t.Helper()
	out, err := h.Try("find", dir, "-xdev", "-type", "f", "-printf", `%s %P\n`)
	if err != nil && out == "" { // files that are removed meanwhile are errors too
		h.t.Fatalf("%s: counting the files in %s: %v", h.Name, dir, err)
	}
	f := growth.Figures{}
	for line := range strings.Lines(out) {
		var size float64
		var path string
		if _, err := fmt.Sscan(line, &size, &path); err != nil {
			continue
		}
		name := what
		switch {
		case what == "data" && strings.HasPrefix(path, "server/etcd/"):
			name = "etcd"
		case what == "data" && strings.HasPrefix(path, "log/"):
			name = "log"
		case what == "the kubelet" && lastWords(path):
			name = "last words"
		}
		f["files of "+name]++
		f[growth.Bytes+name] += size
	}
	return f
}
