package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// named answers every connection with a name.
func named(name string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, name)
		c.Close()
	}
}

// long is a head start by which a slow machine can tell whether it was waited for.
const long = 4 * time.Second

func TestDialer(t *testing.T) {
	direct, through := listen(t, named("direct")), listen(t, named("tunnel"))
	p := connect(t, func(string) (string, error) { return through, nil })
	broken := connect(t, func(string) (string, error) { return "", errors.New("not from me") })
	ok := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, direct)
	}
	fails := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route to host") }
	hangs := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]struct {
		hub    *Hub
		owner  Owner // of 10.0.0.3
		direct func(context.Context, string, string) (net.Conn, error)
		to     string
		want   string        // answer, or part of the error
		ahead  time.Duration // 0 is for those that must not wait for it
	}{
		"direct first":     {p.hub, Owner{"n", []string{"127.0.0.1"}}, ok, "10.0.0.3:1", "direct", 0},
		"direct fails":     {p.hub, Owner{"n", []string{"127.0.0.1"}}, fails, "10.0.0.3:1", "tunnel", 0},
		"direct hangs":     {p.hub, Owner{"n", []string{"127.0.0.1"}}, hangs, "10.0.0.3:1", "tunnel", headStart},
		"behind a NAT":     {p.hub, Owner{"n", []string{"10.0.0.3"}}, ok, "10.0.0.3:1", "tunnel", 0},
		"nobody's address": {p.hub, Owner{}, ok, "10.9.9.9:1", "direct", 0},
		"no tunnel":        {p.hub, Owner{"m", nil}, fails, "10.0.0.3:1", "node m has no tunnel to this server, and 10.0.0.3:1 does not answer directly: no route to host", 0},
		"no tunnel needed": {p.hub, Owner{"m", nil}, ok, "10.0.0.3:1", "direct", 0},
		"neither": {broken.hub, Owner{"n", []string{"127.0.0.1"}}, fails, "10.0.0.3:1",
			"10.0.0.3:1 is not reached through the tunnel of node n (not from me), and does not answer directly: no route to host", 0},
		"refused": {broken.hub, Owner{"n", []string{"127.0.0.1"}}, hangs, "10.0.0.3:1", "through the tunnel of node n (not from me)", headStart},
	} {
		t.Run(name, func(t *testing.T) {
			ahead, within := c.ahead, 10*time.Second // far less than directTimeout
			if ahead == 0 {
				ahead, within = long, long/2
			}
			d := &Dialer{Hub: c.hub, Direct: c.direct, Owner: func(host string) (Owner, bool) { return c.owner, host == "10.0.0.3" }, ahead: ahead}
			began := time.Now()
			got, err := fetch(t, d, c.to)
			if got != c.want && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q %v, want %q", got, err, c.want)
			}
			if took := time.Since(began); took > within {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func fetch(t *testing.T, d *Dialer, to string) (string, error) {
	t.Helper()
	conn, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	all, err := io.ReadAll(conn)
	return string(all), err
}

// TestDialerRemembers: after a failure of the direct way the tunnel has no handicap.
func TestDialerRemembers(t *testing.T) {
	through := listen(t, named("tunnel"))
	p := connect(t, func(string) (string, error) { return through, nil })
	d := &Dialer{
		Hub:   p.hub,
		Owner: func(string) (Owner, bool) { return Owner{"n", []string{"127.0.0.1"}}, true },
		Direct: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		ahead: long,
	}
	for i, most := range []time.Duration{directTimeout, long / 2} {
		began := time.Now()
		if got, err := fetch(t, d, "10.0.0.3:1"); got != "tunnel" {
			t.Fatal(got, err)
		}
		if took := time.Since(began); took > most {
			t.Errorf("connection %d took %s", i, took)
		}
	}
}

// TestDialerWaits: a connection that is asked for a moment before the node's tunnel is there gets through.
func TestDialerWaits(t *testing.T) {
	through := listen(t, named("tunnel"))
	hub := &Hub{}
	defer hub.Close()
	s := serve(t, hub)
	d := &Dialer{
		Hub:   hub,
		Owner: func(string) (Owner, bool) { return Owner{Node: "n"}, true },
		Direct: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() {
		defer close(ended)
		_ = node(s, func(string) (string, error) { return through, nil }).Connect(ctx, s.Listener.Addr().String(), func() {})
	})
	if got, err := fetch(t, d, "10.0.0.3:1"); got != "tunnel" {
		t.Error(got, err)
	}
	cancel()
	<-ended
}

// TestDialerOwnNode: a server that does not reach its own node is not helped by whoever has a tunnel under its name.
func TestDialerOwnNode(t *testing.T) {
	through := listen(t, named("tunnel"))
	p := connect(t, func(string) (string, error) { return through, nil })
	d := &Dialer{
		Hub: p.hub, Self: "n",
		Owner:  func(string) (Owner, bool) { return Owner{"n", []string{"127.0.0.1"}}, true },
		Direct: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route to host") },
	}
	if got, err := fetch(t, d, "10.0.0.3:1"); got != "" || err == nil || err.Error() != "no route to host" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestLateConnection: of two ways the slower one is closed, whichever that is.
func TestLateConnection(t *testing.T) {
	for name, slowFirst := range map[string]bool{"the first": true, "the second": false} {
		t.Run(name, func(t *testing.T) {
			late, peer := net.Pipe()
			fast, other := net.Pipe()
			defer other.Close()
			begun, won := make(chan struct{}), make(chan struct{})
			slow := func(context.Context) (net.Conn, error) {
				close(begun)
				<-won
				return late, nil
			}
			quick := func(context.Context) (net.Conn, error) {
				<-begun
				return fast, nil
			}
			first, second := quick, slow
			if slowFirst {
				first, second = slow, quick
			}
			conn, _, _ := race(t.Context(), 0, first, second)
			close(won)
			if conn != fast {
				t.Fatal("the quick way did not win")
			}
			_ = peer.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the late connection is open: %v", err)
			}
			fast.Close()
		})
	}
}
