package sharedshims

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	containerdshim "github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// How containerd speaks to shims: its own words and number for it.
const (
	protocol = "ttrpc"
	version  = 3
)

// Shims starts shims and finds those that run. Each has a directory with its socket, and the files that containerd's shim expects in its
// working directory: the pipe of its log, and the address of the socket that it removes when it ends.
type Shims struct {
	Program string // containerd-shim-runc-v2
	Dir     string // of the shims' directories, at most 42 bytes long
	Socket  string // containerd's
}

// prefix begins the name of each shared shim, which is that of its directory.
const prefix = "shared-"

func (s Shims) socket(name string) string  { return filepath.Join(s.Dir, name, "socket") }
func (s Shims) address(name string) string { return "unix://" + s.socket(name) }

// start starts a shim and returns its name. It calls ended once, after the process has ended.
func (s Shims) start(ended func(name string)) (_ string, err error) {
	dir := ""
	defer func() {
		if err != nil {
			err = fmt.Errorf("starting a shim: %w", err)
			os.RemoveAll(dir)
		}
	}()
	if err := os.MkdirAll(s.Dir, 0o711); err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp(s.Dir, prefix); err != nil {
		return "", err
	}
	name := filepath.Base(dir)
	if err := errors.Join(unix.Mkfifo(filepath.Join(dir, "log"), 0o600),
		os.WriteFile(filepath.Join(dir, "address"), []byte(s.address(name)), 0o600)); err != nil {
		return "", err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket(name)})
	if err != nil {
		return "", err
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return "", err
	}
	defer file.Close()
	conn, err := net.Dial("unix", s.socket(name))
	if err != nil {
		return "", err
	}
	process, err := s.run(dir, file)
	if err != nil {
		conn.Close()
		return "", err
	}
	go process.Wait() // so that it is no zombie; its end is seen at the connection
	go s.follow(name, conn, ended)
	return name, nil
}

// run starts the process, which serves the listener. The arguments are those that containerd gives, but for -id, which older versions of
// coracle must not read: they would end a shim that has no directory of a sandbox with this name.
func (s Shims) run(dir string, listener *os.File) (*exec.Cmd, error) {
	cmd := exec.Command(s.Program, "-namespace", criNamespace, "-id="+filepath.Base(dir), "-address", s.Socket)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TTRPC_ADDRESS="+s.Socket+".ttrpc", "GOMAXPROCS=4")
	cmd.ExtraFiles = []*os.File{listener}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals for coracle's group are not for pods
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := containerdshim.AdjustOOMScore(cmd.Process.Pid); err != nil {
		log.L.WithError(err).Warn("protecting a shim from the kernel's OOM killer")
	}
	return cmd, nil
}

// resume finds the shims that run since before containerd was started, and asks those without containers to end. The directories of shims
// that have ended are removed.
func (s Shims) resume(ended func(name string)) (names []string, err error) {
	dirs, err := filepath.Glob(filepath.Join(s.Dir, prefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		conn, err := net.Dial("unix", s.socket(name))
		if err != nil {
			os.RemoveAll(dir)
			continue
		}
		if err := s.endIfEmpty(name); err != nil {
			log.L.WithError(err).Warnf("asking %s whether it has containers", name)
		}
		names = append(names, name)
		go s.follow(name, conn, ended)
	}
	return names, nil
}

// endIfEmpty asks a shim to end, which it does only if it has no containers.
func (s Shims) endIfEmpty(name string) error {
	conn, err := net.Dial("unix", s.socket(name))
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = task.NewTTRPCTaskClient(client).Shutdown(ctx, &task.ShutdownRequest{ID: name})
	return err
}

// follow copies the shim's log until its process has ended: then the kernel closes the connection, on which nothing is ever sent.
func (s Shims) follow(name string, conn net.Conn, ended func(name string)) {
	dir := filepath.Join(s.Dir, name)
	if pipe, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR|unix.O_NONBLOCK, 0); err == nil { // read and write: it has no end while shims come and go
		defer pipe.Close()
		go io.Copy(os.Stderr, pipe)
	}
	io.Copy(io.Discard, conn)
	conn.Close()
	os.RemoveAll(dir)
	ended(name)
}
