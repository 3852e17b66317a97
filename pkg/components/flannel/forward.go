package flannel

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/sirupsen/logrus"
)

// warnOfDrop says when the host's own firewall drops what it forwards, as Docker's does: nftables lets one table's
// drop win over every other's accept, so no rule in a table of ours could let pods through, and the tables of others
// are not ours to change.
func warnOfDrop(ctx context.Context, clusterCIDRs []netip.Prefix) {
	for _, cidr := range clusterCIDRs {
		family, tool := "ip", "iptables"
		if cidr.Addr().Is6() {
			family, tool = "ip6", "ip6tables"
		}
		out, err := exec.CommandContext(ctx, "nft", "list", "chain", family, "filter", "FORWARD").Output()
		if err != nil || !drops(string(out), cidr) {
			continue // most hosts have no such chain
		}
		logrus.WithField("component", "flannel").Warnf("the host's firewall drops forwarded packets (chain FORWARD of table %s filter): "+
			"pods reach nobody until it lets them through: %s", family, remedy(tool, cidr))
	}
}

// drops reports whether a chain, as nft lists it, drops by default and does not name the pods' network.
func drops(chain string, cidr netip.Prefix) bool {
	return strings.Contains(chain, "policy drop") && !strings.Contains(chain, cidr.String())
}

// remedy are commands that let the pods' packets through.
func remedy(tool string, cidr netip.Prefix) string {
	return fmt.Sprintf("%[1]s -I FORWARD -s %[2]s -j ACCEPT; %[1]s -I FORWARD -d %[2]s -j ACCEPT", tool, cidr)
}
