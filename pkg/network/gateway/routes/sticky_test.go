package routes

import (
	"fmt"
	"testing"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// TestSessions: sessions are spread evenly, stay when others come and go, and by the backends' weights.
func TestSessions(t *testing.T) {
	const sessions = 10000
	addresses := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("10.42.0.%d:8080", i))
		}
		return out
	}
	chosen := func(n int) map[uint64]string {
		table, out := New(gateway.Config{}, gateway.Endpoints{"a": addresses(n)}, nil), map[uint64]string{}
		for s := range uint64(sessions) {
			out[s] = table.NextFor("a", mix(s, 1), nil)
		}
		return out
	}
	ten, nine := chosen(10), chosen(9)
	count, moved := map[string]int{}, 0
	for s, address := range ten {
		count[address]++
		if address != nine[s] {
			moved++
			if address != addresses(10)[9] {
				t.Fatalf("session %d moves from %s, which stays", s, address)
			}
		}
	}
	for address, n := range count {
		if n < sessions/10*8/10 || n > sessions/10*12/10 {
			t.Errorf("%s has %d of %d sessions", address, n, sessions)
		}
	}
	if moved == 0 || moved > sessions/10*12/10 {
		t.Errorf("%d sessions move when one of ten addresses goes", moved)
	}
	table := New(gateway.Config{}, gateway.Endpoints{"a": addresses(3), "b": addresses(1), "gone": {}}, nil)
	if first := table.NextFor("a", 7, nil); table.NextFor("a", 7, []string{first}) == first {
		t.Error("an address that was tried is tried again")
	}
	r := Route{Route: &gateway.Route{Backends: []gateway.Backend{{Endpoints: "a", Weight: 80}, {Endpoints: "b", Weight: 20}, {Endpoints: "gone", Weight: 1000}, {Endpoints: "none"}}}}
	part := 0
	for s := range uint64(sessions) {
		switch b := r.PickFor(mix(s, 1), table); b.Endpoints {
		case "b":
			part++
		case "gone", "none":
			t.Fatal(b.Endpoints)
		}
	}
	if part < sessions*18/100 || part > sessions*22/100 {
		t.Errorf("%d of %d sessions", part, sessions)
	}
}
