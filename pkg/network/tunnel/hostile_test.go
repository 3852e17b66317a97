package tunnel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// raw is a peer that sends frames as it likes.
type raw struct{ net.Conn }

// hostileNode is a node of name n with a connection to the hub.
func hostileNode(t *testing.T, hub *Hub) raw {
	t.Helper()
	near, far := net.Pipe()
	if err := hub.Serve("n", near); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return raw{far}
}

func frame(kind byte, flags uint16, id uint32, length int) []byte {
	f := make([]byte, frameHeader)
	f[1] = kind
	binary.BigEndian.PutUint16(f[2:], flags)
	binary.BigEndian.PutUint32(f[4:], id)
	binary.BigEndian.PutUint32(f[8:], uint32(length))
	return f
}

// send sends frames until the other end hangs up or enough were sent.
func (r raw) send(frames ...[]byte) (err error) {
	for _, f := range frames {
		if _, err = r.Write(f); err != nil {
			return err
		}
	}
	return nil
}

// TestBreaksProtocol: a peer that does what no honest one does is disconnected.
func TestBreaksProtocol(t *testing.T) {
	many := func(f func(i int) []byte) (all [][]byte) {
		for i := range 5000 {
			all = append(all, f(i))
		}
		return all
	}
	for name, c := range map[string]struct {
		atNode bool
		frames [][]byte
	}{
		"a node opens a stream":           {false, [][]byte{frame(frameWindow, flagSYN, 2, 0)}},
		"a node opens a stream with data": {false, [][]byte{frame(frameData, flagSYN, 2, 1), {0}}},
		"a node sends data early":         {false, [][]byte{frame(frameData, 0, 1, 1), {0}}},
		"a node pings without end":        {false, many(func(i int) []byte { return frame(framePing, flagSYN, 0, i) })},
		"a server pings without end":      {true, many(func(i int) []byte { return frame(framePing, flagSYN, 0, i) })},
		"a server opens without end":      {true, many(func(i int) []byte { return frame(frameWindow, flagSYN, uint32(2*i+1), 0) })},
		"another version":                 {false, [][]byte{{9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}},
		"another type":                    {false, [][]byte{{0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			s, err := newSession(near, c.atNode, newAllowance())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			go func() { _, _ = io.Copy(io.Discard, far) }() // answers
			go func() { _ = raw{far}.send(c.frames...) }()
			select {
			case <-s.CloseChan():
			case <-time.After(time.Minute):
				t.Error("it stays connected")
			}
		})
	}
}

// flood is a node that sends as much as it may on each stream that the server opens.
func (r raw) flood() {
	data := make([]byte, 64<<10)
	header := make([]byte, frameHeader)
	ids := make(chan uint32, 1000)
	go func() {
		for id := range ids {
			_ = r.send(append(frame(frameWindow, 2, id, 0), frame(frameData, 0, id, 1)...), []byte{accepted})
			for sent := 0; sent+len(data) < maxWindow; sent += len(data) {
				_ = r.send(frame(frameData, 0, id, len(data)), data)
			}
		}
	}()
	defer close(ids)
	for {
		if _, err := io.ReadFull(r, header); err != nil {
			return
		}
		if header[1] == frameData { // the address
			_, _ = io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint32(header[8:])))
			ids <- binary.BigEndian.Uint32(header[4:])
		}
	}
}

// TestNobodyReads: whatever a node sends, it costs the server at most 5 MB, and streams that are read go on.
func TestNobodyReads(t *testing.T) {
	hub := &Hub{}
	for range maxSessions {
		go hostileNode(t, hub).flood()
	}
	before := heap()
	var conns []net.Conn
	for range 12 {
		conn, err := hub.Dial(t.Context(), "n", "10.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	read := conns[len(conns)-1] // all data of this one arrives although nobody reads the others
	_ = read.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.CopyN(io.Discard, read, maxWindow/2); err != nil {
		t.Error(err)
	}
	if more := heap() - before; more > 5<<20 {
		t.Errorf("the node costs %d bytes", more)
	}
	stalled := 0
	for _, c := range conns[:len(conns)-1] {
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, errStalled) {
			stalled++
		}
		c.Close()
	}
	if stalled == 0 || stalled > len(conns)-3 {
		t.Errorf("%d of %d streams that nobody read were closed", stalled, len(conns)-1)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestPausedStreams: streams that are not read for long are left alone while there is room.
func TestPausedStreams(t *testing.T) {
	p := connect(t, allowAll)
	data := bytes.Repeat([]byte("x"), 8<<20)
	source := listen(t, func(c net.Conn) {
		defer c.Close()
		_, _ = c.Write(data)
	})
	var conns []net.Conn
	for range 2 {
		conn, err := p.hub.Dial(t.Context(), "n", source)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	await(t, "a full window of both", func() bool { return p.held() >= 2*maxWindow-64<<10 })
	p.age(time.Hour)
	conn, err := p.hub.Dial(t.Context(), "n", listen(t, echo))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for _, c := range conns {
		if n, err := io.Copy(io.Discard, c); err != nil || n != int64(len(data)) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
}

func (p *pair) allowance() *allowance {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	return p.hub.nodes["n"].allowance
}

func (p *pair) held() int {
	a := p.allowance()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// age makes all streams older.
func (p *pair) age(by time.Duration) {
	a := p.allowance()
	a.mu.Lock()
	defer a.mu.Unlock()
	for s := range a.streams {
		s.since = s.since.Add(-by)
	}
}

// TestStallClock: the time for which a stream was not read counts from when the room was used up. Room is free again when a buffer was released.
func TestStallClock(t *testing.T) {
	a := newAllowance()
	var all []*stream
	for range 3 {
		s := &stream{Stream: &yamux.Stream{}}
		a.hold(s, maxWindow)
		s.since = s.since.Add(-time.Hour)
		all = append(all, s)
	}
	if changed, _, stalled, left := a.full(); changed == nil || stalled != nil || left <= 0 {
		t.Errorf("the room is used up: %v, to be closed at once: %v, left: %s", changed != nil, stalled != nil, left)
	}
	a.filled = a.filled.Add(-stallTimeout)
	_, _, first, _ := a.full()
	if !slices.Contains(all, first) {
		t.Fatal("no stream is closed that nobody reads")
	}
	a.release(first, 1) // it is drained, which wakes those that wait
	if _, _, second, left := a.full(); second != nil || left <= 0 {
		t.Errorf("another stream is closed while the first is drained: %v, left: %s", second != nil, left)
	}

	a.release(all[1], maxWindow)
	_, empty, _, _ := a.full()
	since, ok := empty[all[1]]
	if !ok {
		t.Fatal("a stream without data is not found")
	}
	a.hold(all[1], 1)
	a.release(all[1], 1)
	if a.shrunk(all[1], since); a.held != 3*maxWindow {
		t.Error("the buffer of a stream does not count, to which data came before it could be released")
	}
	if a.shrunk(all[1], all[1].since); a.held != 2*maxWindow {
		t.Errorf("%d bytes are held", a.held)
	}
}

// TestDialEnds: a dial ends with its context, even if the node reads nothing.
func TestDialEnds(t *testing.T) {
	hub := &Hub{}
	hostileNode(t, hub)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := hub.Dial(ctx, "n", "10.0.0.1:80"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestCloseOfFullStream: a stream that is closed while it is full costs nothing, and the node's connection to the target ends.
func TestCloseOfFullStream(t *testing.T) {
	p := connect(t, allowAll)
	ended := make(chan struct{})
	source := listen(t, func(c net.Conn) {
		defer close(ended)
		_, _ = io.Copy(c, zeros{})
		c.Close()
	})
	conn, err := p.hub.Dial(t.Context(), "n", source)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a full window", func() bool { return p.held() >= maxWindow-64<<10 })
	conn.Close()
	select {
	case <-ended:
	case <-time.After(closeTimeout / 2):
		t.Error("the target is not told")
	}
	await(t, "no memory of it", func() bool { return p.held() == 0 })
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// fed is a connection whose peer sends the data and then closes; what it is sent is dropped.
type fed struct {
	net.Conn
	data *bytes.Reader
}

func (f fed) Read(p []byte) (int, error)  { return f.data.Read(p) }
func (f fed) Write(p []byte) (int, error) { return len(p), nil }
func (f fed) Close() error                { return nil }

// FuzzFrames: a peer that sends anything costs no more than the allowance, and its session ends with its connection.
func FuzzFrames(f *testing.F) {
	hello := append(frame(frameWindow, 2, 1, 0), append(frame(frameData, 0, 1, 3), "+hi"...)...)
	for _, seed := range [][]byte{
		nil, hello, append(hello, frame(frameWindow, 4, 1, 0)...), frame(framePing, flagSYN, 0, 7), frame(framePing, 2, 0, 0), frame(3, 0, 0, 0),
		append(frame(frameWindow, flagSYN, 1, 0), append(frame(frameData, 0, 1, 13), "127.0.0.1:80\n"...)...),
		frame(frameData, flagSYN, 1, 1<<30), append(frame(frameWindow, 8, 1, 0), hello...), frame(frameData, 0, 9, 5), {0, 0, 0},
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, atNode bool) {
		a := newAllowance()
		s, err := newSession(fed{data: bytes.NewReader(data)}, atNode, a)
		if err != nil {
			t.Fatal(err)
		}
		if atNode {
			for {
				stream, err := s.accept()
				if err != nil {
					break
				}
				_, _ = readAddress(stream)
				stream.Close()
			}
		} else if stream, err := s.open(); err == nil {
			_ = requestAddress(stream, "10.0.0.1:80")
			stream.Close()
		}
		select {
		case <-s.CloseChan():
		case <-time.After(time.Minute):
			t.Fatal("the session outlives its connection")
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.held < 0 || a.held > maxHeld+maxWindow {
			t.Errorf("%d bytes are held", a.held)
		}
	})
}

// TestNeverLockedOut: a node whose dead connections the server still counts is served at once.
func TestNeverLockedOut(t *testing.T) {
	hub := &Hub{}
	for range 3 * maxSessions { // none of them ever answers
		hostileNode(t, hub)
	}
	s := serve(t, hub)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	up := make(chan struct{})
	go func() { _ = node(s, allowAll).Connect(ctx, s.Listener.Addr().String(), func() { close(up) }) }()
	<-up
	address := listen(t, echo)
	await(t, "a connection through the new tunnel", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := hub.Dial(ctx, "n", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	hub.mu.Lock()
	defer hub.mu.Unlock()
	if sessions := len(hub.nodes["n"].sessions); sessions != maxSessions {
		t.Errorf("%d connections are kept, not %d", sessions, maxSessions)
	}
}
