package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/localcluster"
)

// job is a command in the foreground. It has the terminal, if there is one, and a process group of its own, so that its children
// get the signals that it gets.
type job struct {
	cmd *exec.Cmd
	tty *os.File // nil if this process is not in the foreground of a terminal
}

// newJob prepares a command with this process's input and output.
func newJob(args, env []string, as *syscall.Credential) (*job, error) {
	path, err := exec.LookPath(args[0]) // in this process's PATH, which is the command's too
	if err != nil {
		return nil, notRunnable(args[0], err)
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	j := &job{cmd: cmd}
	if tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		if !inForeground(tty) {
			tty.Close()
			return j, nil
		}
		j.tty = tty
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(tty.Fd())
	}
	return j, nil
}

// notRunnable prints why a command cannot be run, and returns the exit code for that.
func notRunnable(name string, err error) error {
	fmt.Fprintf(os.Stderr, "coracle: running %s: %v\n", name, err)
	if errors.Is(err, fs.ErrPermission) {
		return exitcode.Silent(runNotRun)
	}
	return exitcode.Silent(runNotFound)
}

// inForeground reports whether this process is in the foreground of a terminal.
func inForeground(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// run runs the command and returns its exit code: 128 plus the signal's number if a signal ended it. It calls started with the
// command's process group.
func (j *job) run(started func(group int)) (code int, err error) {
	if j.tty != nil {
		defer j.tty.Close()
	}
	if err := j.cmd.Start(); err != nil {
		return 0, notRunnable(j.cmd.Path, err)
	}
	started(j.cmd.Process.Pid)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(j.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("waiting for %s: %w", j.cmd.Path, err)
		case status.Stopped():
			j.suspend()
			continue
		}
		j.takeTerminal(syscall.Getpgrp())
		// Processes that it left in the background, such as a port-forward, lose their cluster.
		localcluster.EndGroup(j.cmd.Process.Pid)
		if status.Signaled() {
			return runSignalBase + int(status.Signal()), nil
		}
		return status.ExitStatus(), nil
	}
}

// suspend stops this process after Ctrl-Z has stopped the command, so that the shell gets its terminal back, and continues the
// command when the shell continues this process.
func (j *job) suspend() {
	j.takeTerminal(syscall.Getpgrp())
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(time.Second): // the kernel stops no process whose group is orphaned: no shell could continue it
	}
	if j.tty != nil && inForeground(j.tty) {
		j.takeTerminal(j.cmd.Process.Pid)
	}
	_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGCONT)
}

// takeTerminal moves a process group to the foreground of the terminal.
func (j *job) takeTerminal(group int) {
	if j.tty == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // the kernel sends it to a process in the background that does this
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(j.tty.Fd()), unix.TIOCSPGRP, group)
}
