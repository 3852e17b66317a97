package tcpbalancer

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestVanishedMachine drops all packets of a server, as if its machine had lost power. One error must then be enough, because a
// second one would take seconds more.
func TestVanishedMachine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("there is no nft on this machine")
	}
	for name, watch := range map[string]func(net.Conn) error{
		"idle": func(conn net.Conn) error {
			if err := awaitNext(conn, bufio.NewReader(conn), defaultTiming.Interval); err != nil {
				return err
			}
			return probe(conn, bufio.NewReader(conn), "server", defaultTiming.Answer)
		},
		"with a probe": func(conn net.Conn) error {
			return probe(conn, bufio.NewReader(conn), "server", defaultTiming.Answer)
		},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // the thread ends with the test
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				t.Skipf("no network namespace: %v", err)
			}
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				t.Fatal(err)
			}
			if err := netlink.LinkSetUp(lo); err != nil {
				t.Fatal(err)
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			b := New(Options{})
			conn, err := b.dialCanary(context.Background(), &server{dial: listener.Addr().String()})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			cmd := exec.Command("nft", "-f", "-") // it inherits this thread's network
			cmd.Stdin = strings.NewReader("table ip lost { chain input { type filter hook input priority 0; policy drop; }; }")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("nft: %v: %s", err, out)
			}
			began := time.Now()
			err = watch(conn)
			if !conclusive(err) {
				t.Errorf("the error is %v", err)
			}
			if took := time.Since(began); took > 2750*time.Millisecond {
				t.Errorf("noticed after %s", took)
			}
		})
	}
}

// TestProbes: one connection serves many probes.
func TestProbes(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for range 3 {
		if err := probe(conn, reader, "server", time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := awaitNext(conn, reader, time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAwaitNextEnds: a connection that the server closes is no failure of a probe.
func TestAwaitNextEnds(t *testing.T) {
	ours, theirs := net.Pipe()
	go theirs.Close()
	if err := awaitNext(ours, bufio.NewReader(ours), time.Minute); !errors.Is(err, errEnded) || errors.Is(err, io.EOF) {
		t.Errorf("the error is %v", err)
	}
}

// TestFrozenServer: its kernel still acknowledges the probe, so one unanswered probe proves nothing.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := New(Options{}).dialCanary(t.Context(), &server{dial: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := probe(conn, bufio.NewReader(conn), "server", defaultTiming.Answer); err == nil || conclusive(err) {
		t.Errorf("the error is %v", err)
	}
}
