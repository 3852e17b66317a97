package tcpbalancer

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

var quick = Timing{
	Interval: 100 * time.Millisecond, Answer: time.Second, Dial: 3 * time.Second, Next: 50 * time.Millisecond, Hold: time.Second,
}

// backend is an API server of sorts: it answers /readyz, and a line "who" with its name.
type backend struct {
	name, address string
	listener      net.Listener
	unwell        atomic.Bool // /readyz fails
	frozen        atomic.Bool // nothing is answered
	late          atomic.Bool // the next request for /readyz is not answered
	asked         atomic.Int32

	mu    sync.Mutex
	conns []net.Conn
}

func start(t *testing.T, name, address string) *backend {
	t.Helper()
	b := &backend{name: name}
	await(t, "port of "+name, func() bool {
		var err error
		b.listener, err = net.Listen("tcp", address)
		return err == nil
	})
	b.address = b.listener.Addr().String()
	t.Cleanup(b.kill)
	go func() {
		for {
			conn, err := b.listener.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, conn)
			b.mu.Unlock()
			go b.serve(conn)
		}
	}()
	return b
}

func (b *backend) serve(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		switch {
		case b.frozen.Load():
		case strings.HasPrefix(line, "who"):
			fmt.Fprintln(conn, b.name)
		case strings.HasPrefix(line, "GET /readyz"):
			b.asked.Add(1)
			if b.late.CompareAndSwap(true, false) {
				continue
			}
			status := http.StatusOK
			if b.unwell.Load() {
				status = http.StatusInternalServerError
			}
			fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", status, http.StatusText(status))
		}
	}
}

// kill ends it as the kernel ends a process: all connections are closed.
func (b *backend) kill() {
	b.listener.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there is never %s", what)
		}
	}
}

// serve runs a balancer and returns its address.
func serve(t *testing.T, o Options) (*Balancer, string) {
	t.Helper()
	o.Timing = cmp.Or(o.Timing, quick)
	maxIdleSilence := logrus.New()
	maxIdleSilence.SetOutput(io.Discard)
	o.Log = maxIdleSilence
	b := New(o)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("it does not stop")
		}
	})
	return b, listener.Addr().String()
}

// client is one connection through the balancer.
type client struct {
	net.Conn
	reader *bufio.Reader
}

func dial(t *testing.T, address string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{conn, bufio.NewReader(conn)}
}

func (c *client) who() (string, error) {
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprintln(c, "who"); err != nil {
		return "", err
	}
	line, err := c.reader.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c *client) expect(t *testing.T, want string) {
	t.Helper()
	if got, err := c.who(); err != nil || got != want {
		t.Fatalf("got %q %v, want %q", got, err, want)
	}
}

// ended waits until the connection is closed from the other side.
func (c *client) ended(t *testing.T) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.reader.ReadByte(); err == nil || errors.Is(err, syscall.EAGAIN) || isTimeout(err) {
		t.Fatalf("the connection was not closed: %v", err)
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

func TestOneServer(t *testing.T) {
	a := start(t, "a", "127.0.0.1:0")
	b, address := serve(t, Options{Own: a.address, OwnDial: a.address})
	b.Set([]string{a.address})
	dial(t, address).expect(t, "a")
	time.Sleep(3 * quick.Interval)
	if n := a.asked.Load(); n != 0 {
		t.Errorf("the only server was asked %d times", n)
	}

	// While it is away clients wait, and get through when it is back.
	a.kill()
	c := dial(t, address)
	got := make(chan error, 1)
	go func() {
		_, err := c.who()
		got <- err
	}()
	time.Sleep(50 * time.Millisecond)
	start(t, "a", a.address)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestNobody(t *testing.T) {
	a := start(t, "a", "127.0.0.1:0")
	a.kill()
	_, address := serve(t, Options{Listed: []string{a.address}})
	began := time.Now()
	dial(t, address).ended(t)
	if took := time.Since(began); took < quick.Hold/2 || took > 10*quick.Hold {
		t.Errorf("let go after %s", took)
	}
}

func TestOwnFirstAndAgain(t *testing.T) {
	a, o := start(t, "a", "127.0.0.1:0"), start(t, "own", "127.0.0.1:0")
	b, address := serve(t, Options{Own: "10.0.0.1:6443", OwnDial: o.address, Listed: []string{a.address, "10.0.0.1:6443"}})
	c := dial(t, address)
	c.expect(t, "own")
	o.kill()
	c.ended(t)
	c = dial(t, address)
	c.expect(t, "a")

	start(t, "own", o.address)
	await(t, "word that it is back", func() bool { s, _ := b.Snapshot(); return s[0].Own && s[0].Problem == "" })
	c.expect(t, "a") // old connections stay
	dial(t, address).expect(t, "own")
}

func TestUnwell(t *testing.T) {
	a, o := start(t, "a", "127.0.0.1:0"), start(t, "own", "127.0.0.1:0")
	_, address := serve(t, Options{Own: o.address, OwnDial: o.address, Listed: []string{a.address}})
	c := dial(t, address)
	c.expect(t, "own")
	o.unwell.Store(true)
	c.ended(t)
	dial(t, address).expect(t, "a")

	// When none is well, a connection stays where it is: there is no better place.
	c = dial(t, address)
	c.expect(t, "a")
	a.unwell.Store(true)
	time.Sleep(10 * quick.Interval)
	c.expect(t, "a")
	o.unwell.Store(false)
	c.ended(t)
	dial(t, address).expect(t, "own")
}

func TestFrozen(t *testing.T) {
	a, o := start(t, "a", "127.0.0.1:0"), start(t, "own", "127.0.0.1:0")
	_, address := serve(t, Options{Own: o.address, OwnDial: o.address, Listed: []string{a.address}})
	c := dial(t, address)
	c.expect(t, "own")
	o.frozen.Store(true)
	began := time.Now()
	c.ended(t)
	if took := time.Since(began); took > 2*quick.Interval+4*quick.Answer+time.Second {
		t.Errorf("left after %s", took)
	}
	dial(t, address).expect(t, "a")
	o.frozen.Store(false)
	await(t, "a way back", func() bool {
		who, err := dial(t, address).who()
		return err == nil && who == "own"
	})
}

// TestLate: an answer that does not come proves nothing, unless it is the second in a row.
func TestLate(t *testing.T) {
	t.Parallel()
	a, o := start(t, "a", "127.0.0.1:0"), start(t, "own", "127.0.0.1:0")
	timing := quick
	timing.Answer = 3 * time.Second // in a shorter time no keep-alive tells a slow server from a machine that is gone
	_, address := serve(t, Options{Own: o.address, OwnDial: o.address, Listed: []string{a.address}, Timing: timing})
	c := dial(t, address)
	for range 2 {
		o.late.Store(true)
		await(t, "a request that is not answered", func() bool { return !o.late.Load() })
		for before := o.asked.Load(); o.asked.Load() < before+2; time.Sleep(quick.Interval / 10) {
			c.expect(t, "own")
		}
	}
}

func TestListChanges(t *testing.T) {
	a, c := start(t, "a", "127.0.0.1:0"), start(t, "c", "127.0.0.1:0")
	b, address := serve(t, Options{Listed: []string{a.address}})
	old := dial(t, address)
	old.expect(t, "a")
	_, changed := b.Snapshot()
	b.Set(nil)
	select {
	case <-changed:
		t.Error("an empty list is something")
	default:
	}
	b.Set([]string{c.address})
	<-changed
	old.ended(t)
	dial(t, address).expect(t, "c")

	// What has left the list is tried when nothing else answers.
	c.kill()
	await(t, "the old server", func() bool {
		who, err := dial(t, address).who()
		return err == nil && who == "a"
	})
}

func TestFallbacksAreFew(t *testing.T) {
	b := New(Options{})
	for i := range 3 * maxFallbacks {
		b.Set([]string{fmt.Sprintf("10.0.0.%d:6443", i)})
	}
	all, _ := b.Snapshot()
	if len(all) != 1+maxFallbacks || all[0].Fallback || all[0].Address != fmt.Sprintf("10.0.0.%d:6443", 3*maxFallbacks-1) {
		t.Errorf("%+v", all)
	}
}

// silent returns an address that swallows packets.
func silent(t *testing.T) string {
	t.Helper()
	full, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(full) })
	if err := errors.Join(syscall.Bind(full, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(full, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(full)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 3 { // nobody accepts: further connections get no answer
		if conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	return address
}

// TestSilent: an address that swallows packets costs a moment, once.
func TestSilent(t *testing.T) {
	a, gone := start(t, "a", "127.0.0.1:0"), silent(t)
	patient := quick
	patient.Next, patient.Hold = 2*time.Second, 30*time.Second
	b, address := serve(t, Options{Own: gone, OwnDial: gone, Listed: []string{a.address}, Timing: patient})
	dial(t, address).expect(t, "a")
	await(t, "a judgement", func() bool { s, _ := b.Snapshot(); return s[0].Address == a.address })
	began := time.Now()
	dial(t, address).expect(t, "a")
	if took := time.Since(began); took > patient.Next/2 {
		t.Errorf("the second connection took %s", took)
	}
}

// TestStartsMeanwhile: a server that starts is found while another address swallows packets, long before the dial of that one ends.
func TestStartsMeanwhile(t *testing.T) {
	own := start(t, "own", "127.0.0.1:0")
	own.kill()
	patient := quick
	patient.Dial, patient.Hold = 50*time.Second, time.Minute
	b, address := serve(t, Options{Own: own.address, OwnDial: own.address, Listed: []string{silent(t)}, Timing: patient})
	c := dial(t, address)
	await(t, "word that it does not answer", func() bool { s, _ := b.Snapshot(); return s[1].Own && s[1].Problem != "" })
	start(t, "own", own.address)
	c.expect(t, "own")
}

func TestHalfClose(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn) // until the client has said all
		fmt.Fprintf(conn, "%d bytes", len(all))
	}()
	_, address := serve(t, Options{Listed: []string{listener.Addr().String()}})
	c := dial(t, address)
	if _, err := c.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != fmt.Sprintf("%d bytes", 3<<20) {
		t.Errorf("%q %v", got, err)
	}
}

func TestNothingIsLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("many", func(t *testing.T) {
		a, c := start(t, "a", "127.0.0.1:0"), start(t, "c", "127.0.0.1:0")
		_, address := serve(t, Options{Listed: []string{a.address, c.address}})
		for range 50 {
			conn := dial(t, address)
			if _, err := conn.who(); err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
	})
	await(t, "an end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })
}
