package networkpolicy

import (
	"context"
	"fmt"

	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/bridgefilter"
)

// filtered has packets between pods of this node pass the hooks of IP. It returns what is wrong, for people.
func (e *enforcer) filtered() string {
	if err := e.filter(e.network.bridge); err != nil {
		return "policies are not in force between pods of this node: " + err.Error()
	}
	return ""
}

// guard writes the table of the bridge. The bridge hands only what says that it is IP to the hooks of IP: with a tag of a
// VLAN, or two, a packet would go past them, and its receiver takes such tags off. So pods send each other IP and nothing
// else, but what finds neighbours. That is for ports that are marked, so those of the pods that are there are, too. It
// returns what is wrong, for people.
func (e *enforcer) guard(ctx context.Context) string {
	err := e.transact(ctx, knftables.BridgeFamily, func(tx *knftables.Transaction) {
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		tx.Add(&knftables.Table{})
		tx.Add(&knftables.Chain{
			Name: "prerouting", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.PreroutingHook),
			Priority: knftables.PtrTo(knftables.BaseChainPriority("-300")), // before that of handing to IP
		})
		tx.Add(&knftables.Rule{Chain: "prerouting", Rule: fmt.Sprintf("iifgroup %d ether type != { ip, ip6, arp } drop", bridgefilter.Group)})
	})
	if err == nil {
		err = e.adopt(e.network.bridge)
	} else {
		err = fmt.Errorf("writing an nft table of bridges (does the kernel lack CONFIG_NF_TABLES_BRIDGE?): %w", err)
	}
	if err != nil {
		return "pods that send raw packets may get past policies of pods of this node: " + err.Error()
	}
	return ""
}
