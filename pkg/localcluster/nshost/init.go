package nshost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// specFD is the file descriptor of the spec.
const specFD = 3

// enter waits until this process is in the host's cgroups and makes them the root of a cgroup namespace. The exec that follows applies it to
// the whole process.
func enter() error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the go: %w", err)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a cgroup namespace: %w", err)
	}
	// The kernel keeps Pdeathsig for each thread, and only the thread that calls exec remains.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tying the host to who boots it: %w", err)
	}
	return syscall.Exec(self, []string{roleName, roleInit}, os.Environ())
}

// runInit builds the host's file systems, reports with an empty line on standard output that the host is up, and reaps processes.
func runInit() error {
	f := os.NewFile(specFD, "host")
	var s spec
	if err := json.NewDecoder(f).Decode(&s); err != nil {
		return fmt.Errorf("reading what the host is like: %w", err)
	}
	f.Close()
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := buildRoot(s); err != nil {
		return err
	}
	if err := setLoopbackUp(); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE)
	if _, err := os.Stdout.Write([]byte("\n")); err != nil {
		return err
	}
	for {
		reap()
		<-ended
	}
}

// reap waits for all children that have ended.
func reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
