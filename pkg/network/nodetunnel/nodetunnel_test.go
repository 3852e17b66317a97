package nodetunnel

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

func TestAllow(t *testing.T) {
	n := Tunnels{
		Name: "n1", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.3"), netip.MustParseAddr("fd00::3")},
		ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Pods:        func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.42.3.0/24")} },
	}
	for address, want := range map[string]string{
		"10.0.0.3:10250":          "10.0.0.3:10250",
		"[::ffff:10.0.0.3]:10250": "[::ffff:10.0.0.3]:10250",
		"[fd00::3]:10250":         "[fd00::3]:10250",
		"n1:10250":                "10.0.0.3:10250",
		"192.0.2.1:10250":         "10.0.0.3:10250",
		"[2001:db8::1]:10250":     "[fd00::3]:10250",
		"10.42.3.7:8443":          "10.42.3.7:8443",
		"10.42.4.7:8443":          "",
		"127.0.0.1:2379":          "",
		"localhost:22":            "",
		"169.254.169.254:80":      "",
		"10.0.0.4:10250":          "",
		"10.0.0.3":                "",
		"":                        "",
	} {
		got, err := n.allow(address)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q %v, want %q", address, got, err, want)
		}
	}
}

func TestTargets(t *testing.T) {
	for name, c := range map[string]struct {
		servers []tcpbalancer.Server
		want    []string
	}{
		"alone":     {[]tcpbalancer.Server{{Address: "a", Own: true}}, nil},
		"server":    {[]tcpbalancer.Server{{Address: "a", Own: true, Connections: 1}, {Address: "b"}, {Address: "old", Fallback: true}}, []string{"b"}},
		"agent":     {[]tcpbalancer.Server{{Address: "a", Connections: 3}, {Address: "b"}, {Address: "lb", Fallback: true}}, []string{"a", "b"}},
		"by a name": {[]tcpbalancer.Server{{Address: "a", Problem: "no route"}, {Address: "lb", Fallback: true, Connections: 3}, {Address: "old", Fallback: true}}, []string{"a", "lb"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := targets(c.servers); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestPause(t *testing.T) {
	refused, starting := &tunnel.AnswerError{Status: http.StatusForbidden}, &tunnel.AnswerError{Status: http.StatusServiceUnavailable}
	for name, c := range map[string]struct {
		tries      int
		lost       time.Duration
		err        error
		least, max time.Duration
	}{
		"first":    {1, 0, errors.New("EOF"), 125 * time.Millisecond, 250 * time.Millisecond},
		"many":     {100, time.Minute, errors.New("refused"), 2500 * time.Millisecond, 5 * time.Second},
		"for long": {100, time.Hour, errors.New("refused"), 30 * time.Second, time.Minute},
		"starting": {100, time.Minute, starting, 2500 * time.Millisecond, 5 * time.Second},
		"refused":  {100, time.Minute, refused, 30 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				if got := pause(c.tries, c.lost, c.err); got < c.least || got > c.max {
					t.Fatalf("%s", got)
				}
			}
		})
	}
}
