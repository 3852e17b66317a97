package supervise

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// EndLeftovers kills what an earlier front has left: processes whose arguments after their name are one of args,
// and that see the same file at lock as we do (those of a coracle in a container may look the same otherwise). It
// returns once they are gone, so that their files and ports are free. The caller holds the lock. Such processes
// are rare: the kernel kills children with their front, but it does not wait for their end.
func EndLeftovers(lock string, args ...[]string) (killed []int, err error) {
	ours, err := os.Stat(lock)
	if err != nil {
		return nil, fmt.Errorf("looking for processes of an earlier coracle: %w", err)
	}
	for _, pid := range processes() {
		if !called(pid, args) || pid == os.Getpid() {
			continue
		}
		theirs, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, lock))
		if err != nil || !os.SameFile(ours, theirs) {
			continue
		}
		if err := end(pid); err != nil {
			return killed, fmt.Errorf("ending process %d, which an earlier coracle has left: %w", pid, err)
		}
		killed = append(killed, pid)
	}
	return killed, nil
}

// processes lists the ids of all processes that we see.
func processes() (pids []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// called reports whether the process was called with one of the argument lists.
func called(pid int, args [][]string) bool {
	cmdline, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	var have []string
	for _, arg := range bytes.Split(bytes.TrimSuffix(cmdline, []byte{0}), []byte{0}) {
		have = append(have, string(arg))
	}
	return slices.ContainsFunc(args, func(want []string) bool {
		return len(have) > 0 && slices.Equal(have[1:], want)
	})
}

// endTimeout is how long a killed process may take to go. Large ones take a while to give their memory back.
const endTimeout = 10 * time.Second

// end kills a process and waits until it is gone.
func end(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return err
	}
	deadline := time.Now().Add(endTimeout)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("it was killed %s ago and is still there", endTimeout)
		}
	}
}
