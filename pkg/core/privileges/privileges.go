// Package privileges gives up this process's privileges for good.
package privileges

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Needed are the capabilities without which a process cannot hand work over to another user, and stop it there.
var Needed = map[string]int{
	"CAP_SETUID": unix.CAP_SETUID, "CAP_SETGID": unix.CAP_SETGID, "CAP_CHOWN": unix.CAP_CHOWN,
	"CAP_FOWNER": unix.CAP_FOWNER, "CAP_KILL": unix.CAP_KILL, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE,
}

// Has reports whether this process has a capability.
func Has(capability int) bool {
	data, err := capabilities()
	return err == nil && data[capability/32].Effective&(1<<(capability%32)) != 0
}

func capabilities() (data [2]unix.CapUserData, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err = unix.Capget(&header, &data[0])
	return data, err
}

// errOrphan means that the process that started this one has ended.
var errOrphan = errors.New("the process that started this one has ended")

// Drop makes this process, with all its threads, run as the user and the group with one id, without capabilities, and neither it nor
// its children can gain any. The kernel forgets at a change of the user that the process is to end with its parent, so Drop says so
// again.
func Drop(id int) error {
	parent := os.Getppid()
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"leaving root's groups", func() error { return syscall.Setgroups([]int{}) }},
		{"changing the group", func() error { return syscall.Setresgid(id, id, id) }},
		{"changing the user", func() error { return syscall.Setresuid(id, id, id) }},
		{"refusing new privileges", func() error { return allThreads(unix.PR_SET_NO_NEW_PRIVS, 1) }},
		{"ending with the parent", func() error { return allThreads(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL)) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	data, err := capabilities()
	switch {
	case err != nil:
		return fmt.Errorf("reading the capabilities: %w", err)
	case data[0].Permitted|data[1].Permitted != 0:
		return errors.New("capabilities are left after the change of the user")
	case os.Getppid() != parent:
		return errOrphan
	}
	return nil
}

func allThreads(option int, value uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, uintptr(option), value, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
