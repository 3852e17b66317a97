package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// dockerRules is a firewall like Docker's.
const dockerRules = `table ip filter {
	chain DOCKER-USER { return; }
	chain FORWARD { type filter hook forward priority 0; policy drop; jump DOCKER-USER; iifname "docker0" accept; }
}
`

// TestFirewallThatDrops has a firewall that drops forwarded packets, before coracle starts and created again while it
// runs. Pods' traffic is not affected, and after a reset the firewall is as before.
func TestFirewallThatDrops(t *testing.T) {
	slots.Take(t)
	h := newFreshHost(t, "walled")
	h.Run("sh", "-c", "rm -rf /var/lib/coracle/*")
	h.CopyImages()
	load := func(rules string) { h.Run("nft", rules) }
	load(dockerRules + "table inet mine { chain forward { type filter hook forward priority 1; policy drop; ct state invalid drop; }; }")
	before := h.Run("nft", "list", "ruleset")

	h.Start()
	waitReady(t, h)
	h.Apply(manifest(t, "workloads.yaml"))
	h.Kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=3m")
	h.Kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=3m")
	passes := func() error {
		out, err := h.TryCoracle("kubectl", "exec", "client", "--", "probe", "get", "http://web/hostname")
		if err == nil && !strings.HasPrefix(out, "web-") {
			err = fmt.Errorf("the Service says %q", out)
		}
		return err
	}
	hosts.Eventually(t, time.Minute, passes)
	const ours = `comment "coracle"`
	if rules := h.Run("nft", "list", "ruleset"); strings.Count(rules, ours) != 4 {
		t.Errorf("want 2 rules of ours in each of 2 chains:\n%s", rules)
	}

	// Each of these removes coracle's rules; Docker does the second when it starts.
	for _, change := range []string{
		"flush chain ip filter FORWARD",
		"flush table ip filter; delete table ip filter; " + dockerRules,
		"delete table inet mine; table inet mine { chain forward { type filter hook forward priority 1; policy drop; ct state invalid drop; }; }",
	} {
		load(change)
		began := time.Now()
		hosts.Eventually(t, 15*time.Second, func() error {
			if n := strings.Count(h.Run("nft", "list", "ruleset"), ours); n != 4 {
				return fmt.Errorf("after %q there are %d rules of ours", change, n)
			}
			return nil
		})
		t.Logf("healed in %s: %s", time.Since(began).Round(10*time.Millisecond), change)
		hosts.Eventually(t, 15*time.Second, passes)
		if rules := h.Run("nft", "list", "ruleset"); strings.Contains(rules, "ip saddr 10.42.0.0/16 counter packets 0 bytes 0 accept "+ours) {
			t.Errorf("no packet needed our rules:\n%s", rules)
		}
	}

	if _, err := h.Try("which", "iptables"); err == nil {
		if rules := h.Run("iptables", "-S", "FORWARD"); !strings.Contains(rules, "-A FORWARD -s 10.42.0.0/16 -m comment --comment coracle -j ACCEPT") {
			t.Errorf("iptables, and so Docker, reads\n%s", rules)
		}
	}
	if plan := h.Coracle("reset", "--dry-run"); !strings.Contains(plan, "ip filter FORWARD") || !strings.Contains(plan, "inet mine forward") {
		t.Errorf("reset --dry-run does not name the chains:\n%s", plan)
	}
	h.Coracle("reset", "--yes")
	if after := h.Run("nft", "list", "ruleset"); after != before {
		t.Errorf("the ruleset is not as it was:\n%s", diff(before, after))
	}
}
