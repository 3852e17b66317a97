package addressvote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// client talks to a handler over HTTP/2, as the node that it says it is.
type client struct {
	beats   *json.Encoder
	ballots *json.Decoder
	status  int
}

func dial(t *testing.T, s *httptest.Server, node string) client {
	t.Helper()
	body, beats := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Node", node)
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		beats.Close()
		response.Body.Close()
	})
	return client{json.NewEncoder(beats), json.NewDecoder(response.Body), response.StatusCode}
}

func (c client) beat(b Beat) (out Ballot, err error) {
	if err := c.beats.Encode(b); err != nil {
		return out, err
	}
	return out, c.ballots.Decode(&out)
}

// TestHandler: a node gets votes for itself only, and its second connection ends the first.
func TestHandler(t *testing.T) {
	address, vip := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	v := NewVoter([]netip.Addr{vip})
	who := func(r *http.Request) (string, error) {
		if name := r.Header.Get("Node"); name != "" {
			return name, nil
		}
		return "", errors.New("only nodes get addresses")
	}
	refuse := func(w http.ResponseWriter, status int, sentence string) { http.Error(w, sentence, status) }
	isServer := func(_ context.Context, name string) bool { return name == "server" }
	s := httptest.NewUnstartedServer(v.Handler(who, isServer, refuse, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()

	if got := dial(t, s, "").status; got != http.StatusForbidden {
		t.Errorf("nobody gets %d", got)
	}
	if got := dial(t, s, "a").status; got != http.StatusServiceUnavailable {
		t.Errorf("before the pools are known a node gets %d", got)
	}
	select {
	case <-v.Wanted():
	default:
		t.Error("nobody learns that a node asked")
	}
	v.SetPool(map[netip.Addr][]string{address: {"a"}}, nil)
	v.mu.Lock()
	if time.Since(v.started) > Grace {
		t.Error("the first pool begins no grace period")
	}
	v.started = v.started.Add(-Grace)
	v.mu.Unlock()
	everything := Beat{Seq: 1, Holds: []netip.Addr{address, vip}, Majority: true, Healthy: true}
	for node, want := range map[string][]netip.Addr{"thief": nil, "a": {address}, "server": {vip}} {
		if got, err := dial(t, s, node).beat(everything); err != nil || !slices.Equal(got.Votes, want) {
			t.Errorf("%s gets %v (%v), not %v", node, got.Votes, err, want)
		}
	}
	first := dial(t, s, "a")
	if _, err := first.beat(Beat{Seq: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, s, "a").beat(Beat{Seq: 3, Leaving: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.beat(Beat{Seq: 4}); err == nil {
		t.Error("the first connection goes on")
	}
	if _, taken := v.votes[address]; taken {
		t.Error("the vote for a node that left stays")
	}
}

// TestFlood: a connection with too many Beats ends, and foreign addresses are not kept.
func TestFlood(t *testing.T) {
	var p pace
	now := time.Unix(1e9, 0)
	for range 1000 {
		if now = now.Add(Interval / 2); !p.allows(now) {
			t.Fatal("a node with twice the usual Beats is cut off")
		}
	}
	n := 0
	for p.allows(now) {
		n++
	}
	if n > burst {
		t.Errorf("%d Beats at once are allowed", n)
	}
	v := newVoter(nil, func() time.Time { return now })
	a := netip.MustParseAddr("192.0.2.1")
	v.SetPool(map[netip.Addr][]string{a: {"n"}}, nil)
	many := []netip.Addr{a}
	for b := netip.MustParseAddr("198.51.100.0"); len(many) < 1000; b = b.Next() {
		many = append(many, b)
	}
	v.Connect("n", false, func() {}).Beat(Beat{Seq: 1, Holds: many, Refuses: many})
	if c := v.nodes["n"]; len(c.holds) != 1 || len(c.refuses) != 1 {
		t.Errorf("%d and %d addresses are kept", len(c.holds), len(c.refuses))
	}
}

// TestFormerConnection: a Beat that comes late on a former connection does not count.
func TestFormerConnection(t *testing.T) {
	v := NewVoter(nil)
	ended := false
	former := v.Connect("n", false, func() { ended = true })
	v.Connect("n", false, func() {})
	if _, ok := former.Beat(Beat{Seq: 1}); ok || !ended {
		t.Error("the former connection goes on")
	}
}
