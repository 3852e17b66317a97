package flannel

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// openFirewall lets packets of pods pass a host firewall that drops forwarded packets, as Docker's does, until stop is called. Without it
// neither pods nor Services work on such hosts. The rules stay after stop.
func (f Flannel) openFirewall(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	log := logrus.WithField("component", "flannel")
	report := func(err error) {
		log.WithError(err).Warn("rules for pods could not be added to the host's firewall, which may drop all of their packets")
	}
	gate := &nft.Gate{
		Networks: f.ClusterCIDRs, Comment: ledger.RuleComment, Note: f.NoteRules,
		Opened: func(chain string) {
			log.Infof("the host's firewall drops forwarded packets: added rules that let pods through to chain %s", chain)
		},
	}
	if err := gate.Open(); err != nil {
		report(err)
	}
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := gate.Keep(ctx, report); err != nil {
			report(err)
		}
	})
	return func() {
		cancel()
		keeping.Wait()
	}
}

// warnOfLegacyFirewall logs a warning if iptables-legacy drops forwarded packets: its rules are not nftables', and coracle does not
// change them.
func warnOfLegacyFirewall(ctx context.Context, clusterCIDRs []netip.Prefix) {
	for _, cidr := range clusterCIDRs {
		tool, tables := "iptables-legacy", "/proc/net/ip_tables_names"
		if cidr.Addr().Is6() {
			tool, tables = "ip6tables-legacy", "/proc/net/ip6_tables_names"
		}
		names, err := os.ReadFile(tables)
		if err != nil || !slices.Contains(strings.Fields(string(names)), "filter") {
			continue // most hosts have no such table, and the tool would make one
		}
		rules, err := exec.CommandContext(ctx, tool, "-S", "FORWARD").Output()
		if err != nil || !drops(string(rules), cidr) {
			continue
		}
		logrus.WithField("component", "flannel").Warnf("the host's firewall drops forwarded packets (chain FORWARD of %s): "+
			"pods have no network until it lets their packets pass: %s", tool, remedy(tool, cidr))
	}
}

// drops reports whether a chain in the output of iptables-legacy drops by default and does not mention the pod network.
func drops(chain string, cidr netip.Prefix) bool {
	return strings.Contains(chain, "-P FORWARD DROP") && !strings.Contains(chain, cidr.String())
}

// remedy returns commands that let packets of pods pass.
func remedy(tool string, cidr netip.Prefix) string {
	return fmt.Sprintf("%[1]s -I FORWARD -s %[2]s -j ACCEPT; %[1]s -I FORWARD -d %[2]s -j ACCEPT", tool, cidr)
}
