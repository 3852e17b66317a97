package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/paths"
)

// standardPath is the PATH of a process that was started with none, as by a container runtime.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is that of the halves: ours with a PATH that finds our tools first, then the host's, and our busybox
// only for what the host does not have.
func environment(dirs paths.Dirs) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = standardPath
	}
	env := []string{"PATH=" + dirs.Bin() + ":" + path + ":" + filepath.Join(dirs.Bin(), "busybox.d")}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PATH=") && !strings.HasPrefix(e, "NOTIFY_SOCKET=") && !strings.HasPrefix(e, "WATCHDOG_") {
			env = append(env, e)
		}
	}
	return env
}
