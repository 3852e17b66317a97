package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/process"
)

// createdDir returns runc's directory of the container that command, "runc start", starts; it is empty for other commands, and for other programs than the runc beside
// the shim, which is of the same release: they may do more.
func createdDir(command *exec.Cmd) string {
	args := command.Args
	root := slices.Index(args, "--root") + 1
	if root == 0 || root+2 >= len(args) || args[len(args)-2] != "start" {
		return ""
	}
	shim, err := os.Executable()
	program, notFound := filepath.EvalSymlinks(command.Path)
	if err != nil || notFound != nil || program != filepath.Join(filepath.Dir(shim), "runc") {
		return ""
	}
	return filepath.Join(args[root], args[len(args)-1])
}

// startLimit is how long the first process of a container may take until it waits for its start, once runc has created it. Most often it does already; the kubelet
// waits for two minutes.
const startLimit = time.Minute

// errNotCreated means that a container cannot be started. runc finds out why.
var errNotCreated = errors.New("the container is not created")

// start lets the first process of a container go on, as "runc start" does (Container.Exec of its libcontainer): the process waits at a FIFO until somebody reads what
// it writes there, and runc takes a container without the FIFO for started. An execution of runc for that takes longer than all else in a start.
//
// It does not leave a process that may still come to runc: that would wait for ever if the process came in between.
func start(dir string, limit time.Duration) error {
	fifo := filepath.Join(dir, "exec.fifo")
	fd, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return errNotCreated
	}
	defer unix.Close(fd)
	until := time.Now().Add(limit)
	// Whether the process lives is asked before the FIFO is looked at, so that nothing comes later from one that has ended. Most often the first look finds it.
	for lives := true; ; lives = firstProcessLives(dir) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("waiting for the container's first process: %w", err)
		case n == 1:
			if n, err := unix.Read(fd, make([]byte, 1)); n != 1 {
				return fmt.Errorf("the container's first process has closed %s without a word: %v", fifo, err)
			}
			if err := os.Remove(fifo); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		case !lives:
			return errNotCreated
		case time.Now().After(until):
			return fmt.Errorf("the container's first process has not come to its start within %s", limit)
		}
	}
}

// firstProcessLives reports whether the first process of a container with runc's directory dir runs.
func firstProcessLives(dir string) bool {
	var state struct {
		PID     int    `json:"init_process_pid"`
		Started uint64 `json:"init_process_start"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil || json.Unmarshal(data, &state) != nil {
		return false
	}
	p, err := process.Find(state.PID)
	return err == nil && !p.Ended() && p.Started == state.Started
}
