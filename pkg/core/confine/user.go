package confine

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Needed are the capabilities without which a process cannot start one that calls Become, give it files, and stop it.
func Needed() map[string]int {
	return map[string]int{
		"CAP_SETUID": unix.CAP_SETUID, "CAP_SETGID": unix.CAP_SETGID, "CAP_CHOWN": unix.CAP_CHOWN,
		"CAP_FOWNER": unix.CAP_FOWNER, "CAP_KILL": unix.CAP_KILL, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE,
	}
}

// Has reports whether this process has a capability.
func Has(capability int) bool {
	data, err := ownCapabilities()
	return err == nil && data[capability/32].Effective&(1<<(capability%32)) != 0
}

func ownCapabilities() (data [2]unix.CapUserData, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err = unix.Capget(&header, &data[0])
	return data, err
}

// errOrphan means that the process that started this one has ended.
var errOrphan = errors.New("the process that started this one has ended")

// Become makes this process, with all its threads, run for good as the user and the group with one id, without capabilities. Neither it
// nor its children can gain any, and they are refused the system calls of Administrative. It is for a process of which the work needs
// more files than one directory; after an error nothing is certain, and the process must end.
func Become(id int) error {
	parent := os.Getppid()
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"leaving root's groups", func() error { return syscall.Setgroups([]int{}) }},
		{"changing the group", func() error { return syscall.Setresgid(id, id, id) }},
		{"changing the user", func() error { return syscall.Setresuid(id, id, id) }},
		{"refusing new privileges", func() error { return allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0) }},
		// The kernel forgets this at a change of the user.
		{"ending with the parent", func() error {
			return allThreads(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
		}},
		{"restricting system calls", func() error { return install(refusing(Administrative())) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	data, err := ownCapabilities()
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
