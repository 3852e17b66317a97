package check

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holder describes the process that listens on a TCP port.
func holder(port uint16) string {
	inodes := listeners(port)
	if len(inodes) == 0 {
		return "a process that cannot be seen from here"
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !inodes[target] {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		return fmt.Sprintf("process %s (%s)", pid, commandOf(pid))
	}
	return "a process that cannot be seen from here"
}

// listeners are the sockets that listen on the port, as /proc/PID/fd names them.
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

// listening reads a table of the kernel's TCP sockets: field 2 is ADDRESS:PORT in hex, 4 the state, 10 the inode.
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

// commandOf is how the process was called, or at least its name.
func commandOf(pid string) string {
	const enough = 80
	line, err := os.ReadFile("/proc/" + pid + "/cmdline")
	text := strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	if err != nil || text == "" {
		name, _ := os.ReadFile("/proc/" + pid + "/comm")
		return strings.TrimSpace(string(name))
	}
	if len(text) > enough {
		return text[:enough] + "..."
	}
	return text
}
