package member

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"golang.org/x/sys/unix"
)

// listen makes a listener as members have it, without TLS, and returns what it accepts.
func listen(t *testing.T) (net.Listener, <-chan net.Conn) {
	t.Helper()
	listener, err := transport.NewListenerWithOpts("127.0.0.1:0", "http", transport.WithTimeout(time.Minute, time.Minute), prepareAccepted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	return listener, accepted
}

func TestHangUp(t *testing.T) {
	listener, accepted := listen(t)
	type pair struct{ ours, theirs net.Conn }
	connect := func() pair {
		ours, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ours.Close() })
		return pair{ours, <-accepted}
	}
	silent, sender, listening := connect(), connect(), connect()
	if _, err := silent.ours.Write([]byte("GET /raft/stream")); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, sender.theirs) }()
	if _, err := sender.ours.Write(make([]byte, 2*maxRequest)); err != nil { // a database
		t.Fatal(err)
	}
	const silence = 2 * time.Second
	time.Sleep(2 * silence)
	if _, err := listening.theirs.Write([]byte("heartbeat")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(listening.ours, make([]byte, len("heartbeat"))); err != nil {
		t.Fatal(err)
	}
	closeSilentOnce(listener.Addr().(*net.TCPAddr).Port, silence)
	for name, c := range map[string]struct {
		pair
		ended bool
	}{"a silent one": {silent, true}, "one that sends much": {sender, false}, "one that has just been heard": {listening, false}} {
		patience := 50 * time.Millisecond // with what must not come
		if c.ended {
			patience = 20 * time.Second
		}
		_ = c.ours.SetReadDeadline(time.Now().Add(patience))
		_, err := c.ours.Read(make([]byte, 1))
		if ended := err != nil && !os.IsTimeout(err); ended != c.ended {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForgetUnheard(t *testing.T) {
	listener, accepted := listen(t)
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-accepted
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for fd := range 3 + 2*len(entries) {
		if leadsTo(fd, conn.LocalAddr().(*net.TCPAddr).Port) {
			got, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			if err != nil || time.Duration(got)*time.Millisecond != ackTimeout {
				t.Errorf("%d ms, %v", got, err)
			}
			if got, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS); err != nil || got != 1 {
				t.Errorf("it does not repeat often: %d, %v", got, err)
			}
			return
		}
	}
	t.Error("the accepted connection was not found")
}
