package supervise

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// message is the part of sd_notify's protocol that the supervisor uses.
type message struct {
	ready     bool
	alive     bool
	hasStatus bool
	status    string
}

func parseMessage(text string) (m message) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "READY":
			m.ready = value == "1"
		case "WATCHDOG":
			m.alive = value == "1"
		case "STATUS":
			m.hasStatus, m.status = true, value
		}
	}
	return m
}

// notifySocket receives messages. The kernel adds the sender's PID, so that a message of another process is never taken for
// one of a running program.
type notifySocket struct {
	conn *net.UnixConn
	done chan struct{}
}

func listenNotify(path string, notified func(pid int, m message)) (*notifySocket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	if err := passCredentials(conn); err != nil {
		conn.Close()
		return nil, err
	}
	s := &notifySocket{conn: conn, done: make(chan struct{})}
	go s.receive(notified)
	return s, nil
}

func passCredentials(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	return errors.Join(err, set)
}

func (s *notifySocket) receive(notified func(pid int, m message)) {
	defer close(s.done)
	data, control := make([]byte, 8192), make([]byte, 256)
	for {
		n, cn, _, _, err := s.conn.ReadMsgUnix(data, control)
		if err != nil { // closed
			return
		}
		if pid, ok := sender(control[:cn]); ok {
			notified(pid, parseMessage(string(data[:n])))
		}
	}
}

func sender(control []byte) (pid int, ok bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			return int(cred.Pid), true
		}
	}
	return 0, false
}

func (s *notifySocket) close() {
	s.conn.Close()
	<-s.done
}

// Systemd is the service manager that started this process, if one did. Its methods do nothing otherwise.
type Systemd struct {
	socket   string
	watchdog time.Duration // the longest interval between messages to it; 0 is no limit
}

// TakeSystemd reads the service manager's variables and removes them from the environment, so that no child process uses
// them.
func TakeSystemd() Systemd {
	s := Systemd{socket: take("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(take("WATCHDOG_USEC"), 10, 64)
	pid := take("WATCHDOG_PID")
	if err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(usec) * time.Microsecond
	}
	return s
}

func take(name string) string {
	value := os.Getenv(name)
	os.Unsetenv(name)
	return value
}

// notifyTimeout bounds the wait for a service manager that does not read its socket.
const notifyTimeout = time.Second

// Notify sends assignments such as READY=1 in one message.
func (s Systemd) Notify(assignments ...string) {
	if s.socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", s.socket) // a leading @ is an abstract name
	if err != nil {
		return // the service manager does not listen
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(notifyTimeout)) // it may hang
	_, _ = conn.Write([]byte(strings.Join(assignments, "\n")))
}

// Status replaces the one line that systemctl shows.
func (s Systemd) Status(text string) { s.Notify("STATUS=" + oneLine(text)) }

// Watch sends watchdog messages at half the required interval, until ctx is done.
func (s Systemd) Watch(ctx context.Context) {
	if s.socket == "" || s.watchdog == 0 {
		return
	}
	tick := time.NewTicker(s.watchdog / 2)
	defer tick.Stop()
	for {
		s.Notify("WATCHDOG=1")
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
