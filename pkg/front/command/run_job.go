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

// job is a command in the foreground: it has the terminal, if there is one, and a process group of its own, so that a
// shell's or a make's children get what it gets.
type job struct {
	cmd *exec.Cmd
	tty *os.File // nil if this process is not in the foreground of a terminal
}

// newJob prepares a command with this process's input and output.
func newJob(args, env []string, as *syscall.Credential) (*job, error) {
	path, err := exec.LookPath(args[0]) // in this process's PATH, which is the command's
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

// notRunnable says why a command cannot be run, and ends with env's code for that.
func notRunnable(name string, err error) error {
	fmt.Fprintf(os.Stderr, "coracle: running %s: %v\n", name, err)
	if errors.Is(err, fs.ErrPermission) {
		return exitcode.Silent(runNotRun)
	}
	return exitcode.Silent(runNotFound)
}

// inForeground reports whether what is typed on a terminal is for this process.
func inForeground(tty *os.File) bool {
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// run runs the command and returns its exit code, 128 and the signal's number if one ended it. started is told the
// number of its process group.
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
		// What it left in the background, such as a port-forward, has lost its cluster.
		localcluster.EndGroup(j.cmd.Process.Pid)
		if status.Signaled() {
			return runSignalBase + int(status.Signal()), nil
		}
		return status.ExitStatus(), nil
	}
}

// suspend stops this process too when Ctrl-Z has stopped the command, so that the shell gets its terminal back, and lets
// the command go on when the shell says so.
func (j *job) suspend() {
	j.takeTerminal(syscall.Getpgrp())
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(time.Second): // nobody here can be stopped, because no shell could let us go on
	}
	if j.tty != nil && inForeground(j.tty) {
		j.takeTerminal(j.cmd.Process.Pid)
	}
	_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGCONT)
}

// takeTerminal makes a process group the one in the foreground.
func (j *job) takeTerminal(group int) {
	if j.tty == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // which says that one in the background does this
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(j.tty.Fd()), unix.TIOCSPGRP, group)
}
