package nft

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// isolate gives the test a network of its own, and nft.
func isolate(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("there is no nft on this machine")
	}
	runtime.LockOSThread() // the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace: %v", err)
	}
}

func runNFT(t *testing.T, commands string) string {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-") // it inherits this thread's network
	cmd.Stdin = strings.NewReader(commands)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	return string(out)
}

const foreign = `table ip filter {
	chain DOCKER-USER {
		counter packets 0 bytes 0 return
	}

	chain FORWARD {
		type filter hook forward priority filter; policy drop;
		counter packets 0 bytes 0 jump DOCKER-USER
	}
}
table inet mine {
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state established accept comment "coracle-dev"
	}

	chain open {
		type filter hook forward priority filter; policy accept;
	}

	chain input {
		type filter hook input priority filter; policy drop;
	}
}
`

func newGate() (*Gate, *[]string) {
	var noted []string
	return &Gate{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.44.0.0/15"), netip.MustParsePrefix("fd42::/56")},
		Comment:  "coracle",
		Note:     func(chain string) error { noted = append(noted, chain); return nil },
		Opened:   func(string) {},
	}, &noted
}

func TestGate(t *testing.T) {
	isolate(t)
	runNFT(t, foreign)
	before := runNFT(t, "list ruleset")
	gate, noted := newGate()
	for range 2 {
		if err := gate.Open(); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(*noted, ","); got != "ip filter FORWARD,inet mine forward" {
		t.Errorf("noted %s", got)
	}
	after := runNFT(t, "list ruleset")
	for _, want := range []string{
		`ip saddr 10.42.0.0/16 counter packets 0 bytes 0 accept comment "coracle"`,
		`ip daddr 10.44.0.0/15 counter packets 0 bytes 0 accept comment "coracle"`,
		`ip6 saddr fd42::/56 counter packets 0 bytes 0 accept comment "coracle"`,
		`ip6 daddr fd42::/56 counter packets 0 bytes 0 accept comment "coracle"`,
	} {
		if !strings.Contains(after, want) {
			t.Errorf("no rule %s in\n%s", want, after)
		}
	}
	if n := strings.Count(after, `"coracle"`); n != 4+6 {
		t.Errorf("%d rules, want 10:\n%s", n, after)
	}
	if head, _, _ := strings.Cut(after, "jump DOCKER-USER"); strings.Contains(head, `"coracle"`) {
		t.Errorf("a rule of ours is before one of theirs:\n%s", after)
	}

	chains, err := Chains()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chains {
		if err := c.DeleteMarked("coracle"); err != nil {
			t.Error(err)
		}
	}
	if after := runNFT(t, "list ruleset"); after != before {
		t.Errorf("not as it was:\n%s", after)
	}
	runNFT(t, "delete table inet mine")
	for _, c := range chains {
		if err := c.DeleteMarked("coracle"); err != nil {
			t.Errorf("a chain that is gone: %v", err)
		}
	}
}

// TestGateHeals has firewalls come and lose our rules, and others change what is none of its business.
func TestGateHeals(t *testing.T) {
	isolate(t)
	gate, _ := newGate()
	opened, ended := make(chan string, 10), make(chan error, 1)
	gate.Opened = func(chain string) { opened <- chain }
	events, err := subscribe() // here, where the network is
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 1)
	go func() {
		ended <- watch(context.Background(), events, gate.affectedBy, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	expect := func(chains string) {
		t.Helper()
		var got []string
		select {
		case <-changed:
			if err := gate.Open(); err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing was heard of")
		}
		for len(opened) > 0 {
			got = append(got, <-opened)
		}
		if all := strings.Join(got, ","); all != chains {
			t.Errorf("opened %s, want %s", all, chains)
		}
	}
	runNFT(t, foreign)
	expect("ip filter FORWARD,inet mine forward")
	runNFT(t, "add table ip kube-proxy; add chain ip kube-proxy forward { type filter hook forward priority 0; }; add rule ip kube-proxy forward counter; flush table ip kube-proxy")
	runNFT(t, "flush table ip filter")
	expect("ip filter FORWARD")
	runNFT(t, "flush ruleset; "+foreign)
	expect("ip filter FORWARD,inet mine forward")
	runNFT(t, "add chain inet mine open { policy drop; }")
	expect("inet mine open")
	events.Close()
	if err := <-ended; err == nil {
		t.Error("no end")
	}
}
