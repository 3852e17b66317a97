package announcer

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
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

	err   error // the last one, nil after a success
	pause time.Duration
	next  time.Time // when it is tried again after an error
}

// nftTimeout is how long nft may take: meanwhile votes expire.
const nftTimeout = 500 * time.Millisecond

// set makes the table cover addresses of pools and of the API. Without addresses it leaves the table, which then matches nothing that is here. After an error it is tried
// again in pauses that grow, and the log has the first one.
func (g *guard) set(ctx context.Context, log logrus.FieldLogger, pool, api []netip.Addr) error {
	want := slices.Concat(pool, []netip.Addr{{}}, api)
	if g.done && slices.Equal(want, g.have) || len(pool)+len(api) == 0 {
		return nil
	}
	if g.err != nil && time.Now().Before(g.next) {
		return g.err
	}
	if err := g.write(ctx, pool, api); err != nil {
		if g.err == nil {
			log.WithError(err).Error("this node announces no new address")
		}
		g.pause = min(max(2*g.pause, time.Second), retry)
		g.err, g.next = err, time.Now().Add(g.pause)
		return err
	}
	g.have, g.done, g.err, g.pause = want, true, nil, 0
	return nil
}

// write writes the table.
func (g *guard) write(ctx context.Context, pool, api []netip.Addr) error {
	family, name, _ := strings.Cut(footprint.AddressTable, " ")
	kernel, err := knftables.New(knftables.Family(family), name)
	if err != nil {
		return fmt.Errorf("starting nft: %w", err)
	}
	tx := kernel.NewTransaction()
	g.render(tx, pool, api)
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	if err := kernel.Run(ctx, tx); err != nil {
		return fmt.Errorf("writing nft table %s: %w", footprint.AddressTable, err)
	}
	return nil
}

// clear removes the table, unless an address is still there, which the kernel removes later.
func (r *running) clear() {
	r.guard.done = false
	clearTable(r.log)
}

func clearTable(log logrus.FieldLogger) {
	if len(leftovers()) > 0 {
		return
	}
	if there, err := nft.Exists(footprint.AddressTable); err != nil || !there {
		return // without nft there is no table
	}
	if err := nft.Remove(footprint.AddressTable); err != nil {
		log.WithError(err).Warnf("removing nft table %s", footprint.AddressTable)
	}
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
		own := slices.Contains(api, address) // a process here answers, so its connections need path MTU discovery
		ping := "icmp type echo-request"
		switch {
		case address.Is6() && own:
			ping = "icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert, packet-too-big, destination-unreachable, time-exceeded, parameter-problem }"
		case address.Is6():
			ping = "icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert }"
		case own:
			ping = "icmp type { echo-request, destination-unreachable, time-exceeded, parameter-problem }"
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
