package check

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// unseen is the holder of a port if no process is found that has it.
const unseen = "a process that cannot be seen from here"

// holder describes the process that listens on a TCP port.
func holder(port uint16) string {
	inodes := listeners(port)
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && inodes[target] {
			p, _ := process.Read(filepath.Dir(filepath.Dir(fd)))
			return takenBy(p.PID) + "(" + commandOf(p) + ")"
		}
	}
	return unseen
}

// takenBy is how the description of a holder begins.
func takenBy(pid int) string { return fmt.Sprintf("process %d ", pid) }

// listeners returns the sockets that listen on the port, by their names in /proc/PID/fd.
func listeners(port uint16) map[string]bool {
	found := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for inode := range listening(string(table), port) {
			found["socket:["+inode+"]"] = true
		}
	}
	return found
}

// listening reads a table of TCP sockets such as /proc/net/tcp: field 2 is ADDRESS:PORT in hex, 4 the state, 10 the inode.
func listening(table string, port uint16) map[string]bool {
	const stateListen = "0A"
	inodes := map[string]bool{}
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != stateListen {
			continue
		}
		_, hex, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil && uint16(n) == port {
			inodes[f[9]] = true
		}
	}
	return inodes
}

// commandOf returns the command line of a process, or at least its name.
func commandOf(p process.Process) string {
	const enough = 80
	text := cmp.Or(strings.Join(p.Args, " "), p.Name)
	if len(text) > enough {
		return text[:enough] + "..."
	}
	return text
}
