package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/heldsocket"
)

// instance is one running process of a program.
type instance interface {
	pid() int
	signal(syscall.Signal)
	// wait returns after the process has ended and its output was read. how describes the end; ownFault is false if the
	// process was killed by a signal.
	wait() (how string, ownFault bool)
}

// launcher starts processes that the kernel kills when this process ends.
type launcher struct {
	owned  *Children
	socket *notifySocket
	path   string // of socket
	forks  chan func()
}

func newLauncher(owned *Children, socket string, notified func(pid int, m message)) (*launcher, error) {
	l := &launcher{owned: owned, path: socket, forks: make(chan func())}
	var err error
	if l.socket, err = listenNotify(socket, notified); err != nil {
		return nil, fmt.Errorf("listening to the child processes on %s: %w", socket, err)
	}
	go l.fork()
	return l, nil
}

// fork starts every process from one thread: the kernel sends the death signal when the thread that forked ends,
// so that thread has to live as long as the launcher.
func (l *launcher) fork() {
	runtime.LockOSThread()
	for start := range l.forks {
		start()
	}
}

func (l *launcher) close() {
	close(l.forks)
	l.socket.close()
}

// outputDelay bounds the wait for the end of an ended process's output: a process that it left behind may hold the pipe open
// for hours.
const outputDelay = time.Second

func (l *launcher) launch(p Program, line func(string)) (instance, error) {
	proc, err := l.start(p, line, p.OwnMounts)
	if p.OwnMounts && errors.Is(err, unix.EPERM) { // in some containers
		return l.start(p, line, false)
	}
	return proc, err
}

func (l *launcher) start(p Program, line func(string), ownMounts bool) (instance, error) {
	proc := &launched{owned: l.owned, cmd: exec.Command(p.Path, p.Args...), output: lineWriter{line: line}}
	proc.cmd.Env = append(slices.Clip(p.Env), "NOTIFY_SOCKET="+l.path)
	if p.Socket != nil {
		if socket := p.Socket(); socket != nil {
			defer socket.Close()
			proc.cmd.ExtraFiles = []*os.File{socket}
			proc.cmd.Env = append(proc.cmd.Env, heldsocket.Variable+"=1")
		}
	}
	proc.cmd.Stdout, proc.cmd.Stderr = &proc.output, &proc.output
	proc.cmd.WaitDelay = outputDelay
	proc.cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, // so that no child holds etcd's files or ports when this process is killed and started again
		Setpgid:   true,            // Ctrl-C reaches only this process, which stops its children in order
	}
	if ownMounts {
		proc.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
	}
	started := make(chan error)
	l.forks <- func() { started <- l.owned.start(proc.cmd) }
	return proc, <-started
}

// launched is an instance that the launcher has started.
type launched struct {
	owned  *Children
	cmd    *exec.Cmd
	output lineWriter
}

func (p *launched) pid() int                { return p.cmd.Process.Pid }
func (p *launched) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *launched) wait() (string, bool) {
	err := p.owned.wait(p.cmd)
	if len(p.output.rest) > 0 {
		p.output.line(string(p.output.rest))
	}
	if p.cmd.ProcessState == nil {
		return err.Error(), true
	}
	return describe(p.cmd.ProcessState)
}

// describe returns how a process ended: "was killed (SIGKILL)".
func describe(s *os.ProcessState) (string, bool) {
	status, ok := s.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return fmt.Sprintf("was killed (%s)", unix.SignalName(status.Signal())), false
	case s.ExitCode() == 0:
		return "ended unexpectedly", true
	}
	return exited(s.ExitCode()), true
}

func exited(code int) string { return fmt.Sprintf("ended with exit status %d", code) }

// maxLine is the length in bytes at which a longer line is cut.
const maxLine = 64 << 10

// lineWriter calls line with each line that is written to it.
type lineWriter struct {
	line func(string) // takes each line, without its end
	rest []byte       // of a line that has no end yet
}

// Write implements io.Writer.
func (w *lineWriter) Write(data []byte) (int, error) {
	for line := range bytes.Lines(data) {
		w.rest = append(w.rest, line...)
		if bytes.HasSuffix(line, []byte("\n")) || len(w.rest) >= maxLine {
			w.line(string(bytes.TrimSuffix(bytes.TrimSuffix(w.rest, []byte("\n")), []byte("\r"))))
			w.rest = w.rest[:0]
		}
	}
	return len(data), nil
}

func (s *Supervisor) owner() *Children {
	if s.Owner != nil {
		return s.Owner
	}
	return &s.Children
}
