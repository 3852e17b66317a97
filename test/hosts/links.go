package hosts

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Links are the connections between the hosts on a wire, for tests that break them. A broken connection stays broken when
// a host reboots, until Heal. Every change is one line in the test's log.
//
// nftables rules in the wire's bridge drop the packets without a notice to the sender: connections hang, as they do when
// a switch fails.
type Links struct {
	t      testing.TB
	wire   *Wire
	lost   map[direction]int // packets lost, in percent
	cables map[string]cable  // by host; the others have good ones
	relays map[string]*relay // by host
}

// direction is what is sent by one host to another; to is "" for all.
type direction struct{ from, to string }

// NewLinks makes the Links of a wire. A wire has one at most.
func NewLinks(t testing.TB, wire *Wire) *Links {
	t.Helper()
	l := &Links{t: t, wire: wire, lost: map[direction]int{}, cables: map[string]cable{}, relays: map[string]*relay{}}
	t.Cleanup(func() {
		for _, r := range l.relays {
			r.close()
		}
	})
	return l
}

// Cut drops all packets between two hosts.
func (l *Links) Cut(a, b *Host) {
	l.t.Helper()
	l.lose(100, direction{a.Name, b.Name}, direction{b.Name, a.Name})
	l.t.Logf("links: cut %s from %s", a.Name, b.Name)
}

// CutOneWay drops the packets that one host sends to another.
func (l *Links) CutOneWay(from, to *Host) {
	l.t.Helper()
	l.lose(100, direction{from.Name, to.Name})
	l.t.Logf("links: cut the way from %s to %s", from.Name, to.Name)
}

// Isolate cuts a host off from all others.
func (l *Links) Isolate(h *Host) {
	l.t.Helper()
	l.lose(100, direction{h.Name, ""}, direction{"", h.Name})
	l.t.Logf("links: cut %s off", h.Name)
}

// Drop drops a percentage of the packets between two hosts, at random.
func (l *Links) Drop(percent int, a, b *Host) {
	l.t.Helper()
	l.lose(percent, direction{a.Name, b.Name}, direction{b.Name, a.Name})
	l.t.Logf("links: %d %% of the packets between %s and %s are lost", percent, a.Name, b.Name)
}

// Delay delays each packet that a host sends or receives, so that a round trip takes 2*by longer. Zero ends it.
func (l *Links) Delay(h *Host, by time.Duration) {
	l.t.Helper()
	c := l.cables[h.Name]
	c.delay = by
	l.replace(h, c)
	l.t.Logf("links: packets from and to %s take %s longer", h.Name, by)
}

// Reorder lets others overtake a percentage of the packets that a host sends or receives, at random.
func (l *Links) Reorder(percent int, h *Host) {
	l.t.Helper()
	c := l.cables[h.Name]
	c.reorder = percent
	l.replace(h, c)
	l.t.Logf("links: %d %% of the packets from and to %s come after later ones", percent, h.Name)
}

// Duplicate lets a percentage of the packets that a host sends or receives come twice, at random.
func (l *Links) Duplicate(percent int, h *Host) {
	l.t.Helper()
	c := l.cables[h.Name]
	c.duplicate = percent
	l.replace(h, c)
	l.t.Logf("links: %d %% of the packets from and to %s come twice", percent, h.Name)
}

// replace replaces a host's cable. Packets on their way are lost.
func (l *Links) replace(h *Host, c cable) {
	l.t.Helper()
	l.restore(h.Name)
	if c == (cable{}) {
		return
	}
	r, err := newRelay(l.wire, port(h.Name), c)
	if err != nil {
		l.t.Fatalf("replacing the cable of %s: %v", h.Name, err)
	}
	l.relays[h.Name], l.cables[h.Name] = r, c
}

// restore gives a host its good cable back.
func (l *Links) restore(name string) {
	if r := l.relays[name]; r != nil {
		r.close()
		delete(l.relays, name)
		delete(l.cables, name)
	}
}

// Heal ends all that the other methods have done.
func (l *Links) Heal() {
	l.t.Helper()
	clear(l.lost)
	l.apply()
	for name := range l.relays {
		l.restore(name)
	}
	l.t.Log("links: healed")
}

func (l *Links) lose(percent int, directions ...direction) {
	l.t.Helper()
	for _, d := range directions {
		l.lost[d] = percent
	}
	l.apply()
}

// apply replaces all rules in one transaction.
func (l *Links) apply() {
	l.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", l.wire.name, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(l.rules())
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("changing the wire's links: %v: %s", err, out)
	}
}

// rules are the wire's nft table.
func (l *Links) rules() string {
	var lines []string
	for d, percent := range l.lost {
		line := ""
		if d.from != "" {
			line += fmt.Sprintf("iifname %q ", port(d.from))
		}
		if d.to != "" {
			line += fmt.Sprintf("oifname %q ", port(d.to))
		}
		if percent < 100 {
			line += "numgen random mod 100 < " + strconv.Itoa(percent) + " "
		}
		lines = append(lines, line+"drop")
	}
	slices.Sort(lines)
	return "table bridge links {}\ndelete table bridge links\ntable bridge links {\n" +
		"chain forward { type filter hook forward priority 0;\n" + strings.Join(lines, "\n") + "\n}\n}\n"
}
