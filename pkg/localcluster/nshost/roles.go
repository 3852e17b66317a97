package nshost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// roleName is argv[0] of this program when it is re-executed in a role.
const roleName = "coracle-host"

// The roles.
const (
	roleEnter = "enter" // in the new namespaces, but not yet in the cgroup namespace
	roleInit  = "init"  // the host's PID 1
	roleExec  = "exec"  // enters a host and runs a command there: PID CGROUP COMMAND...
)

// self is the path of this program, even after its file was replaced.
const self = "/proc/self/exe"

// reexec prepares this program in a role.
func reexec(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(self)
	cmd.Args = append([]string{roleName, role}, args...)
	return cmd
}

// Main runs the role for which this process was started, if any. Then ok is true and the process must exit with the code. A program that
// uses hosts calls Main before anything else.
func Main() (code int, ok bool) {
	if len(os.Args) < 2 || os.Args[0] != roleName {
		return 0, false
	}
	switch role := os.Args[1]; role {
	case roleEnter:
		return report(enter()), true
	case roleInit:
		return report(runInit()), true
	case roleExec:
		code, err := runOn(os.Args[2:])
		if err != nil {
			fmt.Fprintln(os.Stderr, roleName+":", err)
		}
		return code, true
	}
	return 2, true
}

// report prints an error for awaitUp and returns the exit code.
func report(err error) int {
	fmt.Fprintln(os.Stdout, err)
	return 1
}

// notEntered is the exit code if the command cannot be run on the host, as in env and nsenter.
const notEntered = 126

// runOn runs a command on a host and returns its exit code.
func runOn(args []string) (code int, err error) {
	if len(args) < 3 {
		return 2, errors.New("arguments are PID CGROUP COMMAND...")
	}
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return 2, err
	}
	home, err := ownCgroups()
	if err != nil {
		return notEntered, err
	}
	if err := joinCgroups(args[1], os.Getpid()); err != nil {
		return notEntered, err
	}
	runtime.LockOSThread() // the child inherits the namespaces of the thread that starts it
	if err := enterAll(pid); err != nil {
		return notEntered, err
	}
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		return notEntered, err
	}
	// This process is invisible on the host. In the host's cgroups it would keep coracle from emptying a cgroup.
	go leaveFor(home)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return 0, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// leaveFor moves this process, but not its child, into cgroups. It runs on a thread that has not entered the host's namespaces.
func leaveFor(dirs []string) {
	for _, dir := range dirs {
		_ = join(dir, 0) // on error it stays in the host's cgroup
	}
}

// enterAll moves the calling thread into all namespaces of a host's init. The PID namespace holds for its children only.
func enterAll(pid int) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leaving the other threads' root directory: %w", err)
	}
	names := []string{"cgroup", "ipc", "uts", "net", "pid", "mnt"} // mnt is last, because it hides /proc
	var fds []int
	for _, name := range names {
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("finding the host's namespaces: %w", err)
		}
		fds = append(fds, fd)
	}
	for i, fd := range fds {
		if err := unix.Setns(fd, 0); err != nil {
			return fmt.Errorf("entering the host's %s namespace: %w", names[i], err)
		}
		unix.Close(fd)
	}
	return unix.Chdir("/")
}

// StartDurably starts a command that the kernel kills when this process ends, and not before: it sends Pdeathsig when the thread that started
// the command ends, so that thread is kept. The caller calls release after the command has ended.
func StartDurably(cmd *exec.Cmd) (release func(), err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-ended
	}()
	if err := <-started; err != nil {
		close(ended)
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return func() { close(ended) }, nil
}

// enter waits until this process is in the host's cgroups and makes them the root of a cgroup namespace. The exec that follows applies it to
// the whole process.
func enter() error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the cgroups and the network: %w", err)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a cgroup namespace: %w", err)
	}
	// The kernel keeps Pdeathsig for each thread, and only the thread that calls exec remains.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("tying the host to the process that boots it: %w", err)
	}
	return syscall.Exec(self, []string{roleName, roleInit}, os.Environ())
}

// runInit builds the host's file systems, reports with an empty line on standard output that the host is up, and reaps processes.
func runInit() error {
	var s spec
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return fmt.Errorf("reading the host's configuration: %w", err)
	}
	if err := unix.Sethostname([]byte(s.Name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := buildRoot(s); err != nil {
		return err
	}
	if err := setLoopbackUp(&netlink.Handle{}); err != nil {
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
