package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// EndLeftovers kills what an earlier front has left: processes that were called with a program's arguments and see
// the same file at lock as we do (those of a coracle in a container may look the same otherwise). It returns once
// they are gone, so that their files and ports are free. The caller holds the lock. Such processes are rare: the
// kernel kills children with their front. But it does not wait for their end, so those that are about to end are
// waited for as well.
func EndLeftovers(lock string, programs []Program) (killed []int, err error) {
	ours, err := os.Stat(lock)
	if err != nil {
		return nil, fmt.Errorf("looking for processes of an earlier coracle: %w", err)
	}
	for _, pid := range processes() {
		if pid == os.Getpid() {
			continue
		}
		switch looks(pid, programs) {
		case dying:
			_ = end(pid, 0) // it may be somebody else's
		case running:
			theirs, statErr := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, lock))
			if statErr != nil || !os.SameFile(ours, theirs) {
				continue
			}
			killed = append(killed, pid)
			err = end(pid, unix.SIGKILL)
		}
		if err != nil {
			return killed, fmt.Errorf("ending process %d, which an earlier coracle has left: %w", pid, err)
		}
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

// likeness is what a process has in common with the programs that are looked for.
type likeness int

const (
	other   likeness = iota
	running          // it is one of them
	dying            // it has the name of one; its arguments are gone, because it is about to end
)

func looks(pid int, programs []Program) likeness {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return other
	}
	if len(cmdline) == 0 { // a kernel thread, or a process that has given its memory back
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		if slices.ContainsFunc(programs, func(p Program) bool { return comm(p.Path) == strings.TrimSpace(string(name)) }) {
			return dying
		}
		return other
	}
	have := strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	if slices.ContainsFunc(programs, func(p Program) bool { return slices.Equal(have[1:], p.Args) }) {
		return running
	}
	return other
}

// comm is the name that the kernel gives to a process that runs the file at path.
func comm(path string) string {
	const most = 15
	name := filepath.Base(path)
	return name[:min(len(name), most)]
}

// endTimeout is how long a killed process may take to go. Large ones take a while to give their memory back.
const endTimeout = 10 * time.Second

// end sends a signal to a process, if it is not 0, and waits until the process is gone.
func end(pid int, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if signal != 0 {
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil && err != unix.ESRCH {
			return err
		}
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
			return fmt.Errorf("it is still there %s later", endTimeout)
		}
	}
}
