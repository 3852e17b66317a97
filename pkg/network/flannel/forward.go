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

// passFirewall lets the pods' packets through where the host's own firewall drops what it forwards, as Docker's does,
// and goes on doing so until stop is called. Without that neither pods nor Services work there. The rules stay.
func (f Flannel) passFirewall(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	log := logrus.WithField("component", "flannel")
	report := func(err error) {
		log.WithError(err).Warn("pods may reach nobody, as the host's firewall could not be told to let them through")
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

// warnOfDrop says when rules of iptables-legacy drop what is forwarded: these are not nftables' and not ours to change.
func warnOfDrop(ctx context.Context, clusterCIDRs []netip.Prefix) {
	for _, cidr := range clusterCIDRs {
		tool, tables := "iptables-legacy", "/proc/net/ip_tables_names"
		if cidr.Addr().Is6() {
			tool, tables = "ip6tables-legacy", "/proc/net/ip6_tables_names"
		}
		names, err := os.ReadFile(tables)
		if err != nil || !slices.Contains(strings.Fields(string(names)), "filter") {
			continue // most hosts have no such table, and to ask the tool would make one
		}
		rules, err := exec.CommandContext(ctx, tool, "-S", "FORWARD").Output()
		if err != nil || !drops(string(rules), cidr) {
			continue
		}
		logrus.WithField("component", "flannel").Warnf("the host's firewall drops forwarded packets (chain FORWARD of %s): "+
			"pods reach nobody until it lets them through: %s", tool, remedy(tool, cidr))
	}
}

// drops reports whether a chain, as iptables-legacy lists it, drops by default and does not name the pods' network.
func drops(chain string, cidr netip.Prefix) bool {
	return strings.Contains(chain, "-P FORWARD DROP") && !strings.Contains(chain, cidr.String())
}

// remedy are commands that let the pods' packets through.
func remedy(tool string, cidr netip.Prefix) string {
	return fmt.Sprintf("%[1]s -I FORWARD -s %[2]s -j ACCEPT; %[1]s -I FORWARD -d %[2]s -j ACCEPT", tool, cidr)
}
