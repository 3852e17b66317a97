package hosts

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/slots"
)

// pings reports whether an echo comes back within some seconds.
func pings(from, to *Host, seconds string) bool {
	_, err := from.Try("timeout", seconds, "busybox", "ping", "-c1", to.IP.String())
	return err == nil
}

// fastest is the shortest of some round trips.
func fastest(t *testing.T, from, to *Host) time.Duration {
	t.Helper()
	out := from.Run("busybox", "ping", "-c3", to.IP.String())
	_, figures, _ := strings.Cut(out, "min/avg/max = ")
	least, _, _ := strings.Cut(figures, "/")
	d, err := time.ParseDuration(least + "ms")
	if err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return d
}

const pingCount = 40

// echoes are the numbers of echoes whose answers came, in that order.
func echoes(t *testing.T, from, to *Host) (numbers []int) {
	t.Helper()
	out, err := from.Try("busybox", "ping", "-c", strconv.Itoa(pingCount), "-i0.005", "-w3", to.IP.String())
	for line := range strings.Lines(out) {
		if _, rest, ok := strings.Cut(line, "seq="); ok {
			text, _, _ := strings.Cut(rest, " ")
			n, bad := strconv.Atoi(text)
			if bad != nil {
				t.Fatalf("%v in %s", bad, line)
			}
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		t.Fatalf("nothing answers: %v", err)
	}
	return numbers
}

func TestLinks(t *testing.T) {
	slots.Take(t)
	if os.Geteuid() != 0 {
		t.Skip("hosts are made of namespaces, which needs root")
	}
	wire := NewWire(t, netip.MustParsePrefix("172.30.9.0/24"))
	a, b, c := New(t, wire, "a", Options{}), New(t, wire, "b", Options{}), New(t, wire, "a-long-host-name", Options{})
	links := NewLinks(t, wire)
	expect := func(what string, from, to *Host, want bool) {
		t.Helper()
		patience := map[bool]string{true: "10", false: "1"}
		if got := pings(from, to, patience[want]); got != want {
			t.Errorf("%s: %s reaches %s: %t", what, from.Name, to.Name, got)
		}
	}
	expect("before", a, b, true)
	links.Cut(a, b)
	expect("cut", a, b, false)
	expect("cut", a, c, true)
	b.Kill()
	b.Boot()
	expect("cut, after a reboot", b, a, false)
	links.Heal()
	// b has asked in vain for the MAC address of a. 3 s after its first of three requests the kernel would drop what waits for it, an answer to a's
	// echo too.
	b.Run("ip", "neigh", "flush", "to", a.IP.String())
	expect("healed", a, b, true)
	links.Isolate(c)
	expect("isolated", c, b, false)
	expect("isolated", a, c, false)
	expect("isolated", a, b, true)
	links.Heal()
	links.CutOneWay(a, b)
	expect("cut one way", b, a, false)
	links.Heal()

	links.Delay(c, 60*time.Millisecond)
	if took := fastest(t, a, c); took < 120*time.Millisecond || took > 2*time.Second {
		t.Errorf("with 60 ms each way a round trip takes %s", took)
	}
	links.Heal()
	if took := fastest(t, a, c); took > 60*time.Millisecond {
		t.Errorf("after the delay a round trip takes %s", took)
	}
	links.Reorder(50, a)
	if order := echoes(t, a, b); slices.IsSorted(order) {
		t.Errorf("with half of the packets late, the answers come in the order %v", order)
	}
	links.Heal()
	links.Duplicate(50, a)
	if got := len(echoes(t, a, b)); got <= pingCount {
		t.Errorf("with half of the packets twice, %d echoes are answered by %d", pingCount, got)
	}
	links.Heal()
	if got := echoes(t, a, b); !slices.IsSorted(got) || len(got) != pingCount {
		t.Errorf("after all that, the answers to %d echoes are %v", pingCount, got)
	}
	links.Drop(50, a, b)
	if out, _ := a.Try("timeout", "-s", "INT", "1", "busybox", "ping", "-i0.01", b.IP.String()); strings.Contains(out, " 0% packet loss") {
		t.Errorf("with 50 %% loss: %s", out)
	}
	links.Heal()
}
