// Package confine takes from a process what it does not need, so that whoever takes over its code has little: no user that owns
// anything, no capabilities, no files but those of one directory, and only the system calls of its work.
//
// A process confines itself, before it reads anything that it must not trust: so it can link and open what it needs first.
package confine

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Confinement describes a confined process.
type Confinement struct {
	// ID becomes the process' user and group.
	ID int
	// Root is the directory that becomes the process' root directory, read-only. The process needs a mount namespace of its own for
	// that: the one that starts it sets CLONE_NEWNS.
	Root string
	// Syscalls are all that the process may call from then on; others fail with EPERM. See NameServer.
	Syscalls []uint32
	// Outlives says that the process does not end with its parent.
	Outlives bool
	// Keep are capabilities that the process keeps, such as CAP_NET_BIND_SERVICE.
	Keep []int
}

// Enter confines this process with all its threads, for good. A container may lack permission for a step: then Enter takes the others
// all the same, and returns an error that names what is missing.
func (c Confinement) Enter() error {
	var errs []error
	step := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	beneath := "/"
	if err := enterRoot(c.Root); err != nil {
		step("changing the root directory", err)
		beneath = c.Root
	}
	step("leaving root's groups", syscall.Setgroups([]int{}))
	step("changing the group", syscall.Setresgid(c.ID, c.ID, c.ID))
	if len(c.Keep) > 0 {
		step("keeping capabilities", allThreads(unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0))
	}
	step("changing the user", syscall.Setresuid(c.ID, c.ID, c.ID))
	step("refusing new privileges", allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0))
	step("dropping capabilities", dropCapabilities(c.Keep))
	atParentsEnd := unix.SIGKILL // which the kernel forgets at a change of the user
	if c.Outlives {
		atParentsEnd = 0
	}
	step("ending with the parent", allThreads(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(atParentsEnd), 0))
	step("restricting files", restrictFiles(beneath))
	step("restricting system calls", filter(c.Syscalls))
	return errors.Join(errs...)
}

// enterRoot makes a directory the root of this process' mount namespace, and removes all other mounts from it: there is no way back, as
// there is from chroot.
func enterRoot(dir string) error {
	if same, err := sameMounts(); err != nil || same {
		return errors.Join(err, errors.New("there is no mount namespace for this process alone"))
	}
	for _, m := range []struct {
		source, target string
		flags          uintptr
	}{
		{"", "/", unix.MS_REC | unix.MS_PRIVATE}, // so that nobody else sees the following mounts
		{dir, dir, unix.MS_BIND},
		{"", dir, unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := unix.Mount(m.source, m.target, "", m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil { // see pivot_root(2): the old root is mounted over the new one
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the old root: %w", err)
	}
	return unix.Chdir("/")
}

// sameMounts reports whether this process shares its mount namespace with its parent.
func sameMounts() (bool, error) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return false, err
	}
	parent, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	return own == parent, err
}

// dropCapabilities drops all capabilities but some. It is needed where the user could not be changed, which otherwise has dropped them already, and
// where some are kept. What is to be kept and is not there stays away: the others are dropped all the same.
func dropCapabilities(keep []int) error {
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	now, err := ownCapabilities()
	if err != nil {
		return err
	}
	for _, c := range keep {
		data[c/32].Permitted |= now[c/32].Permitted & (1 << (c % 32))
	}
	data[0].Effective, data[1].Effective = data[0].Permitted, data[1].Permitted
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	return asError(errno)
}

// restrictFiles limits all threads to reading files below a directory, with Landlock. A kernel without Landlock is no error.
func restrictFiles(dir string) error {
	rules := unix.LandlockRulesetAttr{Handled_access_fs: landlockFirst}
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules), 0)
	switch errno {
	case 0:
	case unix.ENOSYS, unix.EOPNOTSUPP:
		return nil
	default:
		return errno
	}
	defer unix.Close(int(fd))
	parent, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	below := unix.LandlockPathBeneathAttr{
		Allowed_access: unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR, Parent_fd: int32(parent),
	}
	_, _, errno = syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&below)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return allThreads(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
}

// landlockFirst are the accesses of Landlock's first version: all of EXECUTE to MAKE_SYM.
const landlockFirst = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1

// allThreads makes a system call in each thread. It fails in a process with cgo.
func allThreads(trap, a1, a2, a3 uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(trap, a1, a2, a3)
	return asError(errno)
}

func asError(errno syscall.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}
