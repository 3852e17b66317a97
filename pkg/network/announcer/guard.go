package announcer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// guard is the nft table that lets nobody reach the node's own processes, such as SSH, through an announced address: a firewall may admit others
// to the address of a Service that it does not admit to the node. Packets for a Service have another destination by then. At the address of the API
// only the API answers, and pings are answered at all of them.
type guard struct {
	port uint16 // of the API
	have []netip.Addr
	done bool // the table is written
}

// set makes the table cover addresses of pools and of the API. Without addresses it leaves the table, which then matches nothing that is here.
func (g *guard) set(ctx context.Context, pool, api []netip.Addr) error {
	want := slices.Concat(pool, []netip.Addr{{}}, api)
	if g.done && slices.Equal(want, g.have) || len(pool)+len(api) == 0 {
		return nil
	}
	family, name, _ := strings.Cut(footprint.AddressTable, " ")
	kernel, err := knftables.New(knftables.Family(family), name)
	if err != nil {
		return fmt.Errorf("starting nft: %w", err)
	}
	tx := kernel.NewTransaction()
	g.render(tx, pool, api)
	if err := kernel.Run(ctx, tx); err != nil {
		return fmt.Errorf("writing nft table %s: %w", footprint.AddressTable, err)
	}
	g.have, g.done = want, true
	return nil
}

// lost looks whether another program has deleted the table, which is then written again.
func (g *guard) lost() {
	if there, err := nft.Exists(footprint.AddressTable); err == nil && !there {
		g.done = false
	}
}

// watchGuard announces on a channel that the table may be gone, also after each write, which replaces it.
func (r *running) watchGuard(ctx context.Context, lost chan<- struct{}) {
	err := nft.WatchDeleted(ctx, footprint.AddressTable, func() {
		select {
		case lost <- struct{}{}:
		default: // it is announced already
		}
	})
	if err != nil {
		r.log.WithError(err).Warnf("deletions of nft table %s are not noticed", footprint.AddressTable)
	}
}

// render replaces the table in one transaction.
func (g *guard) render(tx *knftables.Transaction, pool, api []netip.Addr) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	tx.Add(&knftables.Chain{Name: "input", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.InputHook), Priority: knftables.PtrTo(knftables.FilterPriority)})
	rule := func(text ...any) { tx.Add(&knftables.Rule{Chain: "input", Rule: knftables.Concat(text...)}) }
	rule("iifname lo accept")
	for _, address := range api {
		rule(matches(address), "tcp dport", int(g.port), "accept")
	}
	for _, address := range slices.Concat(pool, api) {
		ping := "icmp type echo-request"
		if address.Is6() {
			ping = "icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert }"
		}
		rule(matches(address), ping, "accept")
		rule(matches(address), "reject with icmpx admin-prohibited")
	}
}

// matches is nft's expression for packets to an address.
func matches(address netip.Addr) string {
	if address.Is6() {
		return "ip6 daddr " + address.String()
	}
	return "ip daddr " + address.String()
}
