package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// testAbuse: clients that hold connections, send headers without an end, or open and reset streams keep no others waiting.
func testAbuse(t *testing.T, s *served, config gateway.Config, port uint16) {
	var underway atomic.Int32
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		underway.Add(1)
		defer underway.Add(-1)
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	config.Routes = []gateway.Route{route("a.test", "/", "a", gateway.ToHTTP), route("slow.test", "/", "slow", gateway.ToHTTP)}
	s.apply(t, config, gateway.Endpoints{"a": {backend(t, "a")}, "slow": {slow.Listener.Addr().String()}})
	open := func() net.Conn {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		return conn
	}
	begin := time.Now()
	var silent []net.Conn
	for _, start := range []string{"", "PRI * HT", "GET /", "GET / HTTP/1.1\r\nHost: a.test\r\nX: "} {
		conn := open()
		fmt.Fprint(conn, start)
		silent = append(silent, conn)
	}
	t.Run("1 GB of headers", func(t *testing.T) {
		conn := open()
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a.test\r\n")
		line := fmt.Appendf(nil, "X-%01000d: 1\r\n", 0)
		sent := 0
		for sent < 1<<30 {
			n, err := conn.Write(line)
			if sent += n; err != nil {
				break
			}
		}
		if sent > 16<<20 { // what buffers of the kernel hold
			t.Errorf("%d bytes are accepted", sent)
		}
		s.get(t, port, "a.test", "/", 200, "a /")
	})
	t.Run("streams that are reset", func(t *testing.T) {
		conn := open()
		_, _ = io.WriteString(conn, http2.ClientPreface)
		framer := http2.NewFramer(conn, conn)
		_ = framer.WriteSettings()
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		var sent uint32
		for ; sent < 20_000; sent++ {
			var block bytes.Buffer
			encoder := hpack.NewEncoder(&block)
			encoder.SetMaxDynamicTableSize(0)
			for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "slow.test"}, {":path", "/"}} {
				_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
			}
			if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*sent + 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}) != nil ||
				framer.WriteRSTStream(2*sent+1, http2.ErrCodeCancel) != nil {
				break
			}
		}
		if most := underway.Load(); most > 500 {
			t.Errorf("%d requests are on their way to the backend", most)
		}
		s.get(t, port, "a.test", "/", 200, "a /")
		conn.Close()
		eventually(t, func() bool { return underway.Load() == 0 })
	})
	t.Run("streams that are reset before the answer", func(t *testing.T) {
		h2, before := openHTTP2(t, port), countedRequests(t, s)
		go func() { _, _ = io.Copy(io.Discard, h2.Conn) }()
		request := block(":method", "GET", ":scheme", "http", ":authority", "a.test", ":path", "/")
		_ = h2.SetDeadline(time.Now().Add(2 * time.Second))
		for id := uint32(1); h2.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: request, EndStream: true, EndHeaders: true}) == nil &&
			h2.WriteRSTStream(id, http2.ErrCodeCancel) == nil; id += 2 {
		}
		// Those that are free, those for 2 seconds, and those that were under way when the connection was to be read no further.
		if served, most := countedRequests(t, s)-before, uint64(freeResets+2*time.Second/resetPause+600); served > most {
			t.Errorf("in 2 seconds %d requests of the connection are served, more than %d", served, most)
		}
		s.get(t, port, "a.test", "/", 200, "a /")
	})
	t.Run("connections without requests", func(t *testing.T) {
		for i, conn := range silent {
			_, err := io.Copy(io.Discard, conn)
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				t.Errorf("connection %d is open after %s", i, time.Since(begin))
			}
		}
	})
}

// countedRequests returns how many requests have ended.
func countedRequests(t *testing.T, s *served) (sum uint64) {
	t.Helper()
	families, err := s.requests.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			sum += m.GetHistogram().GetSampleCount()
		}
	}
	return sum
}
