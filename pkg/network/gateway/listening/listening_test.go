package listening

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// pair returns both ends of a connection of unix sockets.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr)); err != nil {
		t.Fatal(err)
	}
	if b, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// handOver sends the sockets of one process to another.
func handOver(t *testing.T, s *Sockets) *Sockets {
	t.Helper()
	a, b := pair(t)
	sent := make(chan error, 1)
	go func() { sent <- s.Send(a) }()
	next, err := Receive(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return next
}

// greet answers connections with a name until the listener is closed.
func greet(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			fmt.Fprint(c, name)
		}()
	}
}

func ask(t *testing.T, address string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func listen(t *testing.T, s *Sockets, address string) net.Listener {
	t.Helper()
	l, err := s.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestHandover: connections that arrive before, during and after a handover are all answered, of hundreds of sockets.
func TestHandover(t *testing.T) {
	old := New()
	addresses := map[key]string{}
	for i := range 2*mostInBatch + 1 { // each under an address of its own, as ports are not known yet
		k := key{"tcp", fmt.Sprintf("127.0.0.%d:0", i%250+1)}
		l := listen(t, old, k.Address)
		addresses[k] = l.Addr().String()
		if i > 0 {
			defer l.Close()
			continue
		}
		go greet(l, "old")
	}
	first := key{"tcp", "127.0.0.1:0"}
	at := addresses[first]
	if got := ask(t, at); got != "old" {
		t.Errorf("before: %q", got)
	}
	next := handOver(t, old)
	if len(next.streams) != len(addresses) {
		t.Errorf("%d sockets came over, not %d", len(next.streams), len(addresses))
	}
	old.Retire()
	// Nobody accepts now: a connection waits in the socket.
	waiting := make(chan string)
	go func() { waiting <- ask(t, at) }()
	l := listen(t, next, first.Address)
	next.Settle()
	go greet(l, "new")
	if got := <-waiting; got != "new" {
		t.Errorf("meanwhile: %q", got)
	}
	if got := ask(t, at); got != "new" {
		t.Errorf("after: %q", got)
	}
	if len(next.streams) != 1 {
		t.Errorf("%d sockets without users are left", len(next.streams)-1)
	}
	next.Await(t.Context(), 5*time.Second)
	l.Close()
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("the socket is open after its last user")
	}
	if _, err := old.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("a retired process listens again")
	}
}

// TestFailedSuccessor: a process that ends before it serves takes no connection with it.
func TestFailedSuccessor(t *testing.T) {
	old := New()
	l := listen(t, old, "127.0.0.1:0")
	defer l.Close()
	next := handOver(t, old)
	listen(t, next, "127.0.0.1:0").Close() // a probe
	go greet(listen(t, next, "127.0.0.1:0"), "next")
	answers := make(chan string)
	const clients = 20
	dialled := make(chan bool)
	for range clients {
		go func() {
			c, err := net.Dial("tcp", l.Addr().String())
			dialled <- true
			if err != nil {
				answers <- err.Error()
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			answer, err := io.ReadAll(c)
			answers <- fmt.Sprint(string(answer), err)
		}()
	}
	for range clients {
		<-dialled
	}
	next.Retire() // as with the end of its process
	go greet(l, "old")
	for range clients {
		if got := <-answers; got != "old<nil>" {
			t.Errorf("a client got %s", got)
		}
	}
}

// TestReload: a new configuration uses the socket before the former one leaves it, no connection is lost, and none reaches the former one any more.
func TestReload(t *testing.T) {
	s := New()
	l := listen(t, s, "127.0.0.1:0")
	at := l.Addr().String()
	go greet(l, "0")
	for i := range 100 {
		next := listen(t, s, "127.0.0.1:0")
		if next.Addr().String() != at {
			t.Fatal("it has another socket")
		}
		go greet(next, fmt.Sprint(i+1))
		if got := ask(t, at); got != fmt.Sprint(i+1) {
			t.Errorf("%q answers after change %d", got, i)
		}
		failed := listen(t, s, "127.0.0.1:0") // by a configuration that cannot be loaded
		failed.Close()
		failed.Close() // twice is no harm
		l.Close()
		if got := ask(t, at); got != fmt.Sprint(i+1) {
			t.Errorf("%q answers after a change that failed", got)
		}
		l = next
	}
	l.Close()
}

// TestPackets: datagrams reach the next process after a handover.
func TestPackets(t *testing.T) {
	old := New()
	c, err := old.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	next := handOver(t, old)
	old.Retire()
	d, err := next.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, _, err := c.ReadFrom(make([]byte, 1)); err == nil {
		t.Error("the former process still reads")
	}
	client, err := net.Dial("udp", d.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fmt.Fprint(client, "hello")
	data := make([]byte, 16)
	_ = d.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, _, err := d.ReadFrom(data); err != nil || string(data[:n]) != "hello" {
		t.Errorf("%q %v", data[:n], err)
	}
}

// TestReceiveGarbage: what is no handover is an error, and leaves nothing.
func TestReceiveGarbage(t *testing.T) {
	for _, text := range []string{"HTTP/1.1 404 Not Found\r\n\r\n", `{"sockets":[{"network":"tcp","address":":80"}]}`, ""} {
		a, b := pair(t)
		fmt.Fprint(a, text)
		a.Close()
		if s, err := Receive(b); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
}
