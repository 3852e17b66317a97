package announcer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// guard is the nft table that lets nobody reach the node's own processes, such as SSH, through an announced address: a firewall may admit others
// to the address of a Service that it does not admit to the node. Packets for a Service have another destination by then. At the address of the API
// only the API answers, at one of a Gateway only the ports of its listeners, and pings are answered at all of them.
type guard struct {
	have  []guarded // what the table covers
	known bool      // that it does: not before the first write, nor after one that failed, nor when another program has deleted the table

	next    []guarded // what is being written, nil if nothing is
	began   time.Time
	written chan error          // the result
	kernel  knftables.Interface // kept from the first write

	err   error // the last one, nil after a success
	pause time.Duration
	again time.Time // when it is tried again after an error
}

// guarded is an address with the ports at which it may be reached, as nft's expressions: "tcp dport 443".
type guarded struct {
	netip.Addr
	local bool // a process of this machine answers, not a Service
	ports []string
}

// nftTimeout is how long a run of nft may take. On a busy machine it takes more than a second, on others some milliseconds.
const nftTimeout = 5 * time.Second

var errWriting = errors.New("the nft table is being written")

func same(a, b guarded) bool {
	return a.Addr == b.Addr && a.local == b.local && slices.Equal(a.ports, b.ports)
}

// set makes the table cover addresses. It returns errWriting if that is not so yet: votes would expire if it waited. The result is sent to g.written by a
// function that it calls in the background, and ended takes it. Without addresses it leaves the table, which then matches nothing that is here. After an error
// it is tried again in pauses that grow. The log has the first error.
func (g *guard) set(ctx context.Context, log logrus.FieldLogger, want []guarded, background func(func())) error {
	switch now := time.Now(); {
	case len(want) == 0:
		return nil
	case g.next != nil && now.Sub(g.began) > 2*nftTimeout: // it is not to be killed: others announce what this node cannot
		g.failed(log, fmt.Errorf("nft has not ended for %v", 2*nftTimeout))
		return g.err
	case g.next != nil, ctx.Err() != nil:
		return errWriting
	case g.known && slices.EqualFunc(want, g.have, same):
		return nil
	case g.err != nil && now.Before(g.again):
		return g.err
	default:
		g.next, g.began = want, now
	}
	background(func() { g.written <- g.write(ctx, want) })
	return errWriting
}

// covers reports whether the table covers an address, also after the write under way.
func (g *guard) covers(address guarded) bool {
	in := func(all []guarded) bool {
		return slices.ContainsFunc(all, func(a guarded) bool { return same(a, address) })
	}
	return g.known && in(g.have) && (g.next == nil || in(g.next))
}

// ended takes the result of a write.
func (g *guard) ended(ctx context.Context, log logrus.FieldLogger, err error) {
	want := g.next
	g.next = nil
	if g.known = err == nil; g.known {
		g.have, g.err, g.pause = want, nil, 0
		return
	}
	if ctx.Err() == nil { // nft is killed when this node stops
		g.failed(log, err)
	}
	g.pause = min(max(2*g.pause, time.Second), retry)
	g.again = time.Now().Add(g.pause)
}

func (g *guard) failed(log logrus.FieldLogger, err error) {
	if g.err == nil {
		log.WithError(err).Error("this node announces no new address")
	}
	g.err = err
}

// write writes the table.
func (g *guard) write(ctx context.Context, want []guarded) error {
	if g.kernel == nil { // this runs nft two or three times, without a limit
		family, name, _ := strings.Cut(footprint.AddressTable, " ")
		kernel, err := knftables.New(knftables.Family(family), name)
		if err != nil {
			return fmt.Errorf("starting nft: %w", err)
		}
		g.kernel = kernel
	}
	tx := g.kernel.NewTransaction()
	g.render(tx, want)
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	if err := g.kernel.Run(ctx, tx); err != nil {
		return fmt.Errorf("writing nft table %s: %w", footprint.AddressTable, err)
	}
	return nil
}

// clear removes the table, unless an address is still there, which the kernel removes later.
func (r *running) clear() {
	if r.guard.next != nil { // nft is killed, since this node stops
		<-r.guard.written
		r.guard.next = nil
	}
	r.guard.known = false
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
		g.known = false
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

// afterKubeProxy lets kube-proxy say first that a Service has no endpoints: connections to its ports are refused, as at any other of its addresses.
const afterKubeProxy = knftables.FilterPriority + "+10"

// render replaces the table in one transaction.
func (*guard) render(tx *knftables.Transaction, want []guarded) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	tx.Add(&knftables.Chain{Name: "input", Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.InputHook), Priority: knftables.PtrTo(afterKubeProxy)})
	rule := func(text ...any) { tx.Add(&knftables.Rule{Chain: "input", Rule: knftables.Concat(text...)}) }
	rule("iifname lo accept")
	for _, address := range want {
		for _, port := range address.ports {
			rule(matches(address.Addr), port, "accept")
		}
		own := address.local // its connections need path MTU discovery
		ping := "icmp type echo-request"
		switch {
		case address.Is6() && own:
			ping = "icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert, packet-too-big, destination-unreachable, time-exceeded, parameter-problem }"
		case address.Is6():
			ping = "icmpv6 type { echo-request, nd-neighbor-solicit, nd-neighbor-advert }"
		case own:
			ping = "icmp type { echo-request, destination-unreachable, time-exceeded, parameter-problem }"
		}
		rule(matches(address.Addr), ping, "accept")
		rule(matches(address.Addr), "reject with icmpx admin-prohibited")
	}
}

// portRules returns nft's expressions for ports such as "80/TCP". It skips what it does not understand, which a later version may have sent.
func portRules(ports []string) (rules []string) {
	for _, text := range ports {
		number, protocol, _ := strings.Cut(text, "/")
		port, err := strconv.ParseUint(number, 10, 16)
		if protocol = strings.ToLower(protocol); err == nil && (protocol == "tcp" || protocol == "udp") {
			rules = append(rules, fmt.Sprintf("%s dport %d", protocol, port))
		}
	}
	return rules
}

// matches is nft's expression for packets to an address.
func matches(address netip.Addr) string {
	if address.Is6() {
		return "ip6 daddr " + address.String()
	}
	return "ip daddr " + address.String()
}
