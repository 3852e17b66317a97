package networkpolicy

import (
	"context"
	"fmt"

	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/network/networkpolicy/bridgefilter"
)

// filterBridge makes packets between pods of this node pass nftables' IP hooks. It returns the problem for coracle status, or "".
func (e *enforcer) filterBridge() string {
	if err := e.filter(e.network.bridge); err != nil {
		return "policies are not in force between pods of this node: " + err.Error()
	}
	return ""
}

// writeBridgeTable writes the table of the bridge. The bridge passes only frames of EtherType IP to the IP hooks: a frame with one or
// two VLAN tags would bypass the policies, and the receiving pod would remove the tags. So pods may send each other only IP and
// ARP. The rule matches ports by their group, so the ports of existing pods are put into it. It returns the problem for coracle
// status, or "".
func (e *enforcer) writeBridgeTable(ctx context.Context) string {
	err := e.transact(ctx, knftables.BridgeFamily, func(tx *knftables.Transaction) {
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		tx.Add(&knftables.Table{})
		tx.Add(&knftables.Chain{
			Name: "prerouting", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.PreroutingHook),
			Priority: knftables.PtrTo(knftables.BaseChainPriority("-300")), // before the bridge passes packets to the IP hooks
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
