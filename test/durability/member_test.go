package durability

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"

	"github.com/coracle-dev/coracle/pkg/etcd/member"
)

// memberEnv is the environment variable with the directory of the member as which the test binary was run again.
const memberEnv = "CORACLE_TEST_MEMBER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(memberEnv); dir != "" {
		os.Exit(serve(dir))
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(devNull{}, devNull{}, devNull{}))
	os.Exit(m.Run())
}

// devNull discards gRPC's messages about a member that is gone, which these tests cause.
type devNull struct{}

func (devNull) Write(p []byte) (int, error) { return len(p), nil }

// serve is a control plane that has only etcd.
func serve(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	e := &member.Etcd{Name: "n1", Dir: filepath.Join(dir, "db"), Socket: os.Getenv(memberEnv + "_SOCKET"), Peer: netip.MustParseAddrPort("127.0.0.1:2380")}
	mark := e.Socket + ".ready"
	_ = os.Remove(mark)
	if err := e.Run(ctx, func() { _ = os.WriteFile(mark, nil, 0o600) }); err != nil {
		_ = os.Remove(mark)
		fmt.Fprintln(os.Stderr, "member ended:", err)
		return 1
	}
	return 0
}

// machine runs the member in a process of its own, and again whenever it has ended, as the front does.
type machine struct {
	t      *testing.T
	dir    string // where the disk is mounted
	socket string

	mu      sync.Mutex
	process *os.Process
	off     bool
	starts  int
	log     strings.Builder
	done    chan struct{}
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "member") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, dir: filepath.Join(dir, "mnt"), socket: filepath.Join(dir, "s")}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.kill()
		if t.Failed() {
			text := m.log.String()
			t.Logf("log of the member:\n%s", text[max(0, len(text)-6000):])
		}
	})
	return m
}

// remove removes the machine's directories, when its disk is unmounted.
func (m *machine) remove() { _ = os.RemoveAll(filepath.Dir(m.dir)) }

// boot starts the member, and starts it again whenever it ends, until kill.
func (m *machine) boot() {
	m.off, m.done = false, make(chan struct{})
	go func() {
		defer close(m.done)
		for m.once() {
			<-time.After(200 * time.Millisecond)
		}
	}()
}

// once runs the member until it ends, and reports whether it is to be started again.
func (m *machine) once() (again bool) {
	out, err := os.CreateTemp("", "member-log")
	if err != nil {
		panic(err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberEnv+"="+m.dir, memberEnv+"_SOCKET="+m.socket)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.mu.Lock()
	if m.off {
		m.mu.Unlock()
		return false
	}
	err = cmd.Start()
	m.process, m.starts = cmd.Process, m.starts+1
	m.mu.Unlock()
	if err == nil {
		err = cmd.Wait()
	}
	text, _ := os.ReadFile(out.Name())
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(&m.log, "%s\nended: %v\n", text, err)
	return !m.off
}

// started is how often the member was started.
func (m *machine) started() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts
}

// freeze stops all that the member does, also the acknowledging.
func (m *machine) freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = true
	if m.process != nil {
		_ = m.process.Signal(syscall.SIGSTOP)
	}
}

// kill ends the member and waits for its end.
func (m *machine) kill() {
	m.freeze()
	m.mu.Lock()
	if m.process != nil {
		_ = m.process.Kill()
	}
	m.mu.Unlock()
	if m.done != nil {
		<-m.done
	}
}

// stop ends the member in good order.
func (m *machine) stop() {
	m.t.Helper()
	m.mu.Lock()
	m.off = true
	err := m.process.Signal(syscall.SIGTERM)
	m.mu.Unlock()
	if err != nil {
		m.t.Fatal(err)
	}
	<-m.done
}

// client is a client of the member, which may be down.
func (m *machine) client() *clientv3.Client {
	m.t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + m.socket}, Logger: zap.NewNop(), BackoffWaitBetween: 20 * time.Millisecond})
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// await waits until the member answers a linearizable read.
func (m *machine) await(within time.Duration) error {
	for deadline := time.Now().Add(within); ; <-time.After(20 * time.Millisecond) {
		c := m.client() // a new one, because an old one waits longer and longer between its attempts
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := c.Get(ctx, "any")
		cancel()
		_ = c.Close()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the member does not answer within %s: %w", within, err)
		}
	}
}

// ready reports whether the member has said that it is ready, before which it may answer and still find its data damaged.
func (m *machine) ready() bool {
	_, err := os.Stat(m.socket + ".ready")
	return err == nil
}
