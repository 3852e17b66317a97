package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Bin is the path of the coracle executable under test, from CORACLE_BIN. Without it, and without root, the test is
// skipped.
func Bin(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("CORACLE_BIN")
	if bin == "" {
		t.Skip("CORACLE_BIN is not set: run `make test`, which builds coracle and sets it")
	}
	if os.Geteuid() != 0 {
		t.Skip("hosts are made of namespaces, which needs root")
	}
	return bin
}

// Next is the executable of the next version, which is beside the one under test if scripts/next has made it.
func Next(t testing.TB) string {
	t.Helper()
	return filepath.Join(filepath.Dir(Bin(t)), "next", "coracle")
}

// Images are the test images' archives, from CORACLE_TEST_IMAGES: a directory that `make test` fills.
func Images(t testing.TB) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.Getenv("CORACLE_TEST_IMAGES"), "*.tar*"))
	if err != nil || len(found) == 0 {
		t.Skip("CORACLE_TEST_IMAGES names no directory with image archives: run `make test`")
	}
	return found
}

// Server is a running `coracle server` or `coracle agent`.
type Server struct {
	Host *Host
	role string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
	err  error // of Wait; valid once done is closed
	stop sync.Once

	service bool        // it is started again when it ends, until Stop
	reader  *os.Process // of the log, if the host has Piped
}

// Start runs `coracle server` on the host with the given further arguments. The test's log shows the server's log
// if the test fails.
func (h *Host) Start(args ...string) *Server {
	h.t.Helper()
	return h.start("server", args...)
}

// StartAgent is Start for `coracle agent`.
func (h *Host) StartAgent(args ...string) *Server {
	h.t.Helper()
	return h.start("agent", args...)
}

// start runs coracle in one of its roles.
func (h *Host) start(role string, args ...string) *Server {
	h.t.Helper()
	// frontPID finds the front as the only child of this shell.
	return h.run(role, append([]string{"sh", "-c", `"$@" & wait $!`, "sh", Bin(h.t), role}, args...)...)
}

// run runs a shell whose only child is coracle in one of its roles.
func (h *Host) run(role string, command ...string) *Server {
	h.t.Helper()
	log, err := os.CreateTemp(h.dir, role+"-*.log")
	h.must(err)
	s := &Server{Host: h, role: role, log: log, done: make(chan struct{})}
	s.cmd = h.Command(command[0], command[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if h.piped {
		pipe := s.read()
		defer pipe.Close()
		s.cmd.Stdout, s.cmd.Stderr = pipe, pipe
	}
	h.must(s.cmd.Start())
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("log of coracle %s on %s:\n%s", role, h.Name, tail(s.Log(), 60))
			s.keepLog()
		}
	})
	return s
}

// read starts the process that writes to the log what it reads from the returned end of a pipe, until nobody has that end any more.
func (s *Server) read() *os.File {
	s.Host.t.Helper()
	r, w, err := os.Pipe()
	s.Host.must(err)
	defer r.Close()
	cat := exec.Command("cat")
	cat.Stdin, cat.Stdout = r, s.log
	s.Host.must(cat.Start())
	s.reader = cat.Process
	go func() { _ = cat.Wait() }()
	s.Host.t.Cleanup(s.ReadAgain)
	return w
}

// StopReading lets nobody read the server's output, as when journald hangs. The host must have the option Piped.
func (s *Server) StopReading() { _ = s.reader.Signal(syscall.SIGSTOP) }

// ReadAgain ends StopReading.
func (s *Server) ReadAgain() { _ = s.reader.Signal(syscall.SIGCONT) }

// Log is the server's log so far.
func (s *Server) Log() string {
	data, _ := os.ReadFile(s.log.Name())
	return string(data)
}

// Errors are the lines of the log whose level is ERROR.
func (s *Server) Errors() (lines []string) {
	for line := range strings.Lines(s.Log()) {
		if _, rest, _ := strings.Cut(line, " "); strings.HasPrefix(rest, "ERROR ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Restarts is the number of times that a child process has ended and was started again.
func (s *Server) Restarts() int { return strings.Count(s.Log(), "; restarting") }

// keepLog copies the whole log to the directory that CORACLE_TEST_LOGS names, if it is set.
func (s *Server) keepLog() {
	if dir := os.Getenv("CORACLE_TEST_LOGS"); dir != "" {
		name := fmt.Sprintf("%s-%s-%s", strings.ReplaceAll(s.Host.t.Name(), "/", "-"), s.Host.Name, filepath.Base(s.log.Name()))
		_ = os.WriteFile(filepath.Join(dir, name), []byte(s.Log()), 0o644)
	}
}

// FrontPID is the front's process id in this machine's PID namespace. The test fails if the front does not run.
func (s *Server) FrontPID() int {
	s.Host.t.Helper()
	pid, err := s.frontPID()
	if err != nil {
		s.Host.t.Fatalf("finding the front of %s: %v", s.Host.Name, err)
	}
	return pid
}

// frontPID is FrontPID that returns an error if the front does not run, for example right after Start.
func (s *Server) frontPID() (pid int, err error) {
	pid = s.cmd.Process.Pid // of the process that entered the host; its child is the shell, whose child is the front
	for range 2 {
		if pid, err = onlyChild(pid); err != nil {
			return 0, err
		}
	}
	return pid, nil
}

// onlyChild is the process id of a process's only child that meets the conditions, which are arguments of pgrep.
func onlyChild(pid int, conditions ...string) (child int, err error) {
	out, err := exec.Command("pgrep", append([]string{"-P", fmt.Sprint(pid)}, conditions...)...).Output()
	if err != nil {
		return 0, fmt.Errorf("process %d has no such child: %w", pid, err)
	}
	_, err = fmt.Sscan(string(out), &child)
	return child, err
}

// ChildPID is the id, in this machine's PID namespace, of the front's child process with that role: control-plane or
// node.
func (s *Server) ChildPID(role string) (int, error) {
	front, err := s.frontPID()
	if err != nil {
		return 0, fmt.Errorf("finding the front of %s: %w", s.Host.Name, err)
	}
	return onlyChild(front, "-f", "coracle-core "+role)
}

// Process is one of a server's processes. Its PID is of this machine's PID namespace.
type Process struct {
	Name string // "front", a child process' role, or the program as which it was started
	PID  int
}

// Processes are the front and all processes below it that are coracle's own: no pods, and no programs that run for a moment.
func (s *Server) Processes() []Process {
	s.Host.t.Helper()
	all := []Process{{state.Front, s.FrontPID()}}
	for i := 0; i < len(all); i++ {
		out, err := exec.Command("pgrep", "-a", "-P", fmt.Sprint(all[i].PID), "-f", `^([^ ]*/)?coracle-[a-z]+( |$)`).Output()
		if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: none
			s.Host.t.Fatalf("listing the processes of %s: %v", s.Host.Name, err)
		}
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line) // process ID, program, arguments
			p := Process{Name: filepath.Base(words[1])}
			if p.Name == "coracle-core" {
				p.Name = words[2]
			}
			if p.PID, err = strconv.Atoi(words[0]); err != nil {
				s.Host.t.Fatalf("reading %q of pgrep: %v", line, err)
			}
			all = append(all, p)
		}
	}
	return all
}

// Stop sends SIGTERM to the front and waits until the server has ended. It returns the error of its end, if any.
func (s *Server) Stop() error {
	s.Host.t.Helper()
	if s.Ended() {
		return s.err
	}
	if s.service {
		s.Host.must(os.Remove(s.Host.Path("/run/openrc/started")))
	}
	if err := syscall.Kill(s.FrontPID(), syscall.SIGTERM); err != nil {
		return err
	}
	return s.Wait(90 * time.Second)
}

// Ended reports whether the server has ended. A service is started again, until Stop.
func (s *Server) Ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Wait waits for the server's end and returns the error of its end, if any.
func (s *Server) Wait(timeout time.Duration) error {
	select {
	case <-s.done:
		return s.err
	case <-time.After(timeout):
		return fmt.Errorf("coracle %s has not ended within %s", s.role, timeout)
	}
}

// Kill kills the front as soon as it runs, and with it its child processes. The pods stay.
func (s *Server) Kill() {
	s.Host.t.Helper()
	Eventually(s.Host.t, time.Minute, func() error {
		pid, err := s.frontPID()
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	})
	_ = s.Wait(time.Minute)
}

// Coracle runs a coracle command on the host and returns its output; the test fails if the command does.
func (h *Host) Coracle(args ...string) string {
	h.t.Helper()
	out, err := h.TryCoracle(args...)
	if err != nil {
		h.t.Fatalf("%s: coracle %s: %v", h.Name, strings.Join(args, " "), err)
	}
	return out
}

// TryCoracle runs a coracle command on the host and returns its standard output; the error carries its standard error.
func (h *Host) TryCoracle(args ...string) (string, error) {
	if args[0] == "kubectl" && h.sharesKubectl(args[1:]) {
		return h.kubectl(args[1:]...)
	}
	return h.Try(h.bin(), args...)
}

// bin is the executable of commands: the installed one, as that has its programs unpacked, or the one under test.
func (h *Host) bin() string {
	if paths.Exists(h.Data("service", "coracle")) {
		return h.ServiceBin()
	}
	return Bin(h.t)
}

// Kubectl runs `coracle kubectl` on the host; the test fails if the command does.
func (h *Host) Kubectl(args ...string) string {
	h.t.Helper()
	return h.Coracle(append([]string{"kubectl"}, args...)...)
}

// Apply applies a manifest with kubectl.
func (h *Host) Apply(manifest string) {
	h.t.Helper()
	if h.sharesKubectl([]string{"apply"}) {
		file, err := os.CreateTemp("", "manifest-*.yaml") // a test's directory has its name, and kubectl takes a comma as the end of a file's
		h.must(err)
		defer os.Remove(file.Name())
		_, err = file.WriteString(manifest)
		h.must(errors.Join(err, file.Close()))
		_, err = h.kubectl("apply", "-f", file.Name())
		h.must(err)
		return
	}
	cmd := h.Command(h.bin(), "kubectl", "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("applying: %v: %s", err, out)
	}
}

// RESTConfig is a client configuration whose connections start on the host.
func (h *Host) RESTConfig() *rest.Config {
	h.t.Helper()
	data, err := os.ReadFile(h.kubeconfig())
	h.must(err)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	h.must(err)
	cfg.Dial = h.Dial
	cfg.QPS, cfg.Burst = 1000, 1000
	return cfg
}

// Client is a clientset whose connections start on the host.
func (h *Host) Client() kubernetes.Interface {
	h.t.Helper()
	client, err := kubernetes.NewForConfig(h.RESTConfig())
	h.must(err)
	return client
}

// CopyImages puts the test images into the directory from which coracle imports images.
func (h *Host) CopyImages() {
	h.t.Helper()
	h.must(os.MkdirAll(h.Data("images"), 0o755))
	for _, image := range Images(h.t) {
		to := h.Data("images", filepath.Base(image))
		if err := os.Remove(to); !errors.Is(err, fs.ErrNotExist) {
			h.must(err)
		}
		if os.Link(image, to) == nil { // coracle only reads it
			continue
		}
		data, err := os.ReadFile(image) // on another file system
		h.must(err)
		h.must(os.WriteFile(to, data, 0o644))
	}
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := bytes.Split([]byte(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
