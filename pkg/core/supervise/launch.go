package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// instance is one running process of a program.
type instance interface {
	pid() int
	signal(syscall.Signal)
	// wait returns once, after the process has ended and its output was read to the end. It says how the process
	// ended and whether that was its own doing.
	wait() (how string, ownFault bool)
}

// launcher starts processes that end with the process that started them.
type launcher struct {
	owned  *Children
	socket *notifySocket
	path   string
	forks  chan func()
}

func newLauncher(owned *Children, socket string, notified func(pid int, m message)) (*launcher, error) {
	l := &launcher{owned: owned, path: socket, forks: make(chan func())}
	var err error
	if l.socket, err = listenNotify(socket, notified); err != nil {
		return nil, fmt.Errorf("listening to the halves on %s: %w", socket, err)
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

func (l *launcher) launch(p Program, line func(string)) (instance, error) {
	output, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append(p.Env[:len(p.Env):len(p.Env)], "NOTIFY_SOCKET="+l.path)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, // also when we are killed: nobody must hold the store's files on our restart
		Setpgid:   true,            // Ctrl-C reaches us only; we stop the halves in order
	}
	started := make(chan error)
	l.forks <- func() { started <- l.owned.start(cmd) }
	err = <-started
	write.Close()
	if err != nil {
		output.Close()
		return nil, err
	}
	proc := &launched{owned: l.owned, cmd: cmd, output: output, read: make(chan struct{})}
	go func() {
		defer close(proc.read)
		pump(output, line)
	}()
	return proc, nil
}

// launched is an instance of a program.
type launched struct {
	owned  *Children
	cmd    *exec.Cmd
	output *os.File
	read   chan struct{} // closed when all output was read
}

func (p *launched) pid() int                { return p.cmd.Process.Pid }
func (p *launched) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *launched) wait() (string, bool) {
	err := p.owned.wait(p.cmd)
	endPump(p.output)
	<-p.read
	p.output.Close()
	return describe(p.cmd.ProcessState, err)
}

// describe says in words how a process ended.
func describe(s *os.ProcessState, err error) (string, bool) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err.Error(), true
	}
	status, ok := s.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return fmt.Sprintf("was killed (%s)", signalName(status.Signal())), false
	case s.ExitCode() == 0:
		return "ended although nobody asked it to", true
	}
	return fmt.Sprintf("ended with exit status %d", s.ExitCode()), true
}
