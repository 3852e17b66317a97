package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	corepaths "github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// The parts of a host that coracle may change, besides files. Each command prints one line per object.
var inventory = map[string]string{
	"links":       "ls /sys/class/net",
	"addresses":   "ip -o addr | awk '{print $2, $4}'",
	"routes":      "ip route; ip -6 route | grep -v fe80 || true",
	"nft tables":  "nft list tables",
	"netns":       "ls /run/netns 2>/dev/null || true",
	"mounts":      "awk '{print $5, $9}' /proc/self/mountinfo",
	"cgroups":     "find /sys/fs/cgroup -mindepth 2 -type d",
	"processes":   "ps -eo comm= | grep -vE '^(ps|sh|sort|grep|nsenter)$' || true",
	"directories": "find /run /var/lib/coracle /var/lib/kubelet /var/lib/cni /etc /opt /var/log -xdev -print 2>/dev/null || true",
}

// takeInventory lists the parts of the host. Files below /root are omitted, because kubectl has a cache there.
func takeInventory(h *hosts.Host) map[string]string {
	got := map[string]string{}
	for kind, script := range inventory {
		got[kind] = h.Run("sh", "-c", "{ "+script+"; } | sort")
	}
	for line := range strings.Lines(h.Written()) {
		if !strings.HasPrefix(line, "/root/") {
			got["files"] += line
		}
	}
	return got
}

// compareInventory fails the test for each part that has changed, except the unknown ones.
func compareInventory(t *testing.T, h *hosts.Host, before map[string]string, unknown ...string) {
	t.Helper()
	after := takeInventory(h)
	for kind, want := range before {
		if got := after[kind]; got != want && !slices.Contains(unknown, kind) {
			t.Errorf("%s differ:\n%s", kind, diff(want, got))
		}
	}
}

// TestReset compares a host before coracle ever ran with the same host after reset: no difference may be left.
func TestReset(t *testing.T) {
	t.Parallel()
	for name, stopFirst := range map[string]bool{"stopped server": true, "running server": false} {
		t.Run(name, func(t *testing.T) {
			slots.Take(t)
			h := newFreshHost(t, "solo")
			h.Run("sh", "-c", "rm -rf /var/lib/coracle/*; touch /etc/before-coracle; nft add table inet foreign; ip link add foreign0 type bridge; mkdir -p /run/netns")
			before := takeInventory(h)

			h.CopyImages()
			s := h.Start()
			waitReady(t, h)
			h.Apply(manifest(t, "workloads.yaml"))
			h.Kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=3m")
			h.Kubectl("wait", "--for=condition=Ready", "pod/hostport", "pod/client", "--timeout=3m")
			h.Kubectl("rollout", "status", "statefulset/db", "--timeout=3m")
			if stopFirst {
				if err := s.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			checkFootprint(t, h)
			plan := h.Coracle("reset", "--dry-run")
			t.Logf("reset --dry-run:\n%s", plan)
			h.Coracle("reset", "--yes")

			compareInventory(t, h, before)
		})
	}
}

// checkFootprint compares the ledger of a host with the footprint table of a node's components.
func checkFootprint(t *testing.T, h *hosts.Host) {
	t.Helper()
	known := footprint.Possible(config.Config{Dirs: corepaths.Default()})
	for _, p := range footprint.Parts() {
		known = append(known, p.Shared...)
	}
	entries, err := ledger.Open(corepaths.Dirs{Data: h.Path("/var/lib/coracle")}).Entries()
	if err != nil || len(entries) == 0 {
		t.Errorf("the ledger has %d entries: %v", len(entries), err)
	}
	for _, e := range entries {
		switch e.Kind {
		case ledger.Dir, ledger.Contents, ledger.Used, ledger.Propagation, ledger.PodNetwork:
			continue // their names depend on the machine
		case ledger.Sysctl:
			if strings.HasSuffix(e.Name, "accept_ra") {
				continue // of an interface of the machine
			}
		}
		if !slices.ContainsFunc(known, func(k ledger.Entry) bool { return k.Kind == e.Kind && k.Name == e.Name }) && !strings.HasPrefix(e.Name, "/etc/coracle/") {
			t.Errorf("the ledger has %s %s, which is in no footprint", e.Kind, e.Name)
		}
	}
}

// diff lists the lines that only one of two sorted texts has.
func diff(before, after string) string {
	count := map[string]int{}
	for _, line := range strings.Split(before, "\n") {
		count[line]--
	}
	for _, line := range strings.Split(after, "\n") {
		count[line]++
	}
	var b strings.Builder
	for line, n := range count {
		switch {
		case n > 0:
			b.WriteString("+ " + line + "\n")
		case n < 0:
			b.WriteString("- " + line + "\n")
		}
	}
	return b.String()
}
