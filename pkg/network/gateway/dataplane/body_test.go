package dataplane

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// reader is a reader that is a function.
type reader func(p []byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// TestMemory: of a body no more is taken than has come and a piece, and all bodies together have a bound.
func TestMemory(t *testing.T) {
	m := &memory{most: 3 * maxPiece}
	came := int64(0)
	slow := reader(func(p []byte) (int, error) {
		if m.used.Load() > came+maxPiece {
			t.Fatalf("%d bytes are taken for %d", m.used.Load(), came)
		}
		came++
		p[0] = byte(came)
		return 1, nil
	})
	one, whole, err := m.keep(slow, 2*maxPiece)
	if len(one) != 2*maxPiece || !whole || err != nil || one[7] != 8 || m.used.Load() != 2*maxPiece {
		t.Errorf("%d bytes, %v, %v, of %d", len(one), whole, err, m.used.Load())
	}
	other, whole, err := m.keep(strings.NewReader(strings.Repeat("x", 2*maxPiece)), 2*maxPiece)
	if len(other) != maxPiece || whole || err != nil || m.used.Load() != m.most {
		t.Errorf("%d bytes, %v, %v, of %d", len(other), whole, err, m.used.Load())
	}
	m.give(len(one) + len(other))
	all := &memory{most: maxRepeated}
	if long, whole, err := all.keep(strings.NewReader(strings.Repeat("x", maxRepeated)), maxRepeated-1); cap(long) != maxRepeated-1 || !whole || err != nil {
		t.Errorf("%d bytes have memory for %d, %v, %v", len(long), cap(long), whole, err)
	}
	short, whole, err := m.keep(strings.NewReader("abc"), 4)
	if string(short) != "abc" || whole || err != io.EOF || m.used.Load() != 3 {
		t.Errorf("%q, %v, %v, of %d", short, whole, err, m.used.Load())
	}
}

// testBodies: bodies that are kept have a bound together, above which they are sent once, and those that come slowly leave room for mirrors.
func testBodies(t *testing.T, s *served, config gateway.Config, port uint16) {
	one, mirror := record(t), record(t)
	repeated, mirrored := route("f.test", "/", "one", gateway.ToHTTP), route("f.test", "/mirror", "one", gateway.ToHTTP)
	repeated.Retry = &gateway.Retry{Codes: []int{503}, Attempts: 1}
	mirrored.Mirrors = []gateway.Mirror{{Backend: gateway.Backend{Endpoints: "mirror"}}}
	config.Routes = []gateway.Route{repeated, mirrored}
	s.apply(t, config, gateway.Endpoints{"one": {one.address()}, "mirror": {mirror.address()}})
	client := direct(nil)
	defer client.CloseIdleConnections()
	begin := func(path string) net.Conn { // a request of whose body one byte comes
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: f.test\r\nContent-Length: 60000\r\n\r\nx", path)
		return conn
	}
	t.Run("repeated", func(t *testing.T) {
		body := strings.Repeat("x", 3*maxPiece)
		for room, status := range map[int64]int{s.repeated.most: 200, maxPiece: 503} {
			before := s.repeated.most
			s.repeated.most = room
			one.fail.Store(1)
			answer, _ := ask(t, client, http.MethodPost, at(port, "/"), "f.test", body)
			one.fail.Store(0)
			s.repeated.most = before
			if got := one.all(); answer.StatusCode != status || got[len(got)-1].Body != body {
				t.Errorf("with room for %d bytes: %d, the backend gets %d", room, answer.StatusCode, len(got[len(got)-1].Body))
			}
		}
		var slow []net.Conn
		for range 100 {
			slow = append(slow, begin("/"))
		}
		eventually(t, func() bool { return s.repeated.used.Load() >= 100 })
		if used := s.repeated.used.Load(); used > 100*(maxPiece+1) {
			t.Errorf("%d bytes are kept for 100 that have come", used)
		}
		for _, conn := range slow {
			conn.Close()
		}
		eventually(t, func() bool { return s.repeated.used.Load() == 0 })
	})
	t.Run("mirrored", func(t *testing.T) {
		for range maxMirrors + 1 {
			begin("/mirror")
		}
		eventually(t, func() bool { return s.mirrors.memory.used.Load() == maxMirrors+1 })
		if answer, _ := ask(t, client, http.MethodPost, at(port, "/mirror"), "f.test", "copy"); answer.StatusCode != 200 {
			t.Error(answer.StatusCode)
		}
		eventually(t, func() bool { return len(mirror.all()) == 1 && mirror.all()[0].Body == "copy" })
		if used := s.mirrors.memory.used.Load(); used > maxMirrors+1+int64(len("copy")) {
			t.Errorf("%d bytes are kept", used)
		}
	})
	t.Run("mirrored, and slow", func(t *testing.T) {
		m := &memory{most: 100}
		c := &copied{ReadCloser: io.NopCloser(strings.NewReader("0123456789")), memory: m, send: func([]byte, func()) { t.Error("what came late is sent") }}
		_, _ = c.Read(make([]byte, 5))
		c.end() // as mirrorTimeout does
		if rest, err := io.ReadAll(c); string(rest) != "56789" || err != nil || m.used.Load() != 0 {
			t.Errorf("%q, %v, %d bytes", rest, err, m.used.Load())
		}
	})
}
