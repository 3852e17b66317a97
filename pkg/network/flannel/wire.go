package flannel

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// peers are the pod ranges of the other nodes, by the addresses from which each node sends.
type peers map[netip.Addr][]netip.Prefix

// peersOf returns what the Nodes say, without the subnets of this node.
func (m *manager) peersOf(nodes []*corev1.Node) peers {
	own, _ := m.node.Get()
	out := peers{}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, node := range nodes {
		if node.Name == m.node.Name || own != nil && kube.Overlap(own, node) {
			continue
		}
		ranges := kube.SubnetsOf(node, nodes, m.cidrs)
		for _, addr := range addressesOf(node) {
			for _, p := range ranges {
				if p.Addr().Is4() == addr.Is4() { // a packet of pods has the IP version of the packet that contains it
					out[addr] = append(out[addr], p.Masked())
				}
			}
		}
	}
	return out
}

// addressesOf returns the addresses from which a node may send: that of its VXLAN device and those of its status, because its address may
// just have changed, or be translated to its external address on the way.
func addressesOf(node *corev1.Node) (out []netip.Addr) {
	texts := []string{node.Annotations[publicIPKey], node.Annotations[publicIPv6Key]}
	for _, a := range node.Status.Addresses {
		texts = append(texts, a.Address)
	}
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, addr.Unmap()) { // host names are no addresses
			out = append(out, addr.Unmap())
		}
	}
	return out
}

// sameSender reports whether two versions of a Node send the same.
func sameSender(a, b any) bool {
	x, ok := a.(*corev1.Node)
	y, too := b.(*corev1.Node)
	return ok && too && slices.Equal(x.Spec.PodCIDRs, y.Spec.PodCIDRs) && slices.Equal(addressesOf(x), addressesOf(y))
}

// guard has the table of wire written, which needs the Nodes, before the backend makes its device. WatchLeases keeps it up to date.
func (m *manager) guard(ctx context.Context) {
	list, err := m.all.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	tried := make(chan struct{})
	go m.wire.keep(ctx, tried)
	if err != nil {
		return // the watch lists them again
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	m.wire.set(func() peers { return m.peersOf(nodes) })
	select {
	case <-tried:
	case <-ctx.Done():
	}
}

// wire is the nft table that decides what other machines may send to pods. The device of VXLAN takes packets from everybody who can send to its
// port, and a packet of a pod need not have the pod's address. So the table accepts VXLAN only from nodes, with inside a packet of the
// node's own pods, and forwards packets with addresses of pods only from the bridge and the overlay: also to other nodes, which would take
// them for packets of this node's pods. Nobody can have this node send VXLAN to nodes in its name, neither a pod nor through a Service.
type wire struct {
	bridge string
	cidrs  []netip.Prefix
	open   func() (knftables.Interface, error)
	mu     sync.Mutex // orders calls of set
	nodes  chan peers // the latest, which keep has not read yet
}

func newWire(bridge string, cidrs []netip.Prefix) *wire {
	family, name, _ := strings.Cut(footprint.WireTable, " ")
	open := func() (knftables.Interface, error) { return knftables.New(knftables.Family(family), name) }
	return &wire{bridge: bridge, cidrs: cidrs, open: open, nodes: make(chan peers, 1)}
}

// set has keep write the peers that now returns.
func (w *wire) set(now func() peers) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := now()
	select {
	case <-w.nodes:
	default:
	}
	w.nodes <- p
}

// The pauses between attempts to write the table.
const wireRetryMin, wireRetryMax = time.Second, time.Minute

// keep writes the table whenever the peers change or another program deletes it, until ctx is done. The table stays. It closes tried
// after the first attempt.
func (w *wire) keep(ctx context.Context, tried chan<- struct{}) {
	first := sync.OnceFunc(func() { close(tried) })
	log := logrus.WithField("component", "flannel")
	lost := make(chan struct{}, 1)
	go func() {
		if err := nft.WatchDeleted(ctx, footprint.WireTable, func() {
			select {
			case lost <- struct{}{}:
			default: // a notification is pending
			}
		}); err != nil {
			log.WithError(err).Warnf("deletions of nft table %s are not noticed", footprint.WireTable)
		}
	}()
	var want, have peers
	var again <-chan time.Time
	for pause := wireRetryMin; ; {
		select {
		case <-ctx.Done():
			return
		case want = <-w.nodes:
		case <-again:
		case <-lost: // also after each write, which replaces the table
			if there, err := nft.Exists(footprint.WireTable); there || err != nil {
				continue
			}
			have = nil
		}
		if again = nil; want == nil || have != nil && maps.EqualFunc(want, have, slices.Equal) {
			continue
		}
		err := w.write(ctx, want)
		first()
		if err == nil {
			have, pause = want, wireRetryMin
		} else if ctx.Err() == nil {
			log.WithError(err).Warnf("writing nft table %s: anybody who reaches port %d may send to pods; trying again", footprint.WireTable, vxlanPort)
			again, pause = time.After(pause), min(2*pause, wireRetryMax)
		}
	}
}

func (w *wire) write(ctx context.Context, p peers) error {
	kernel, err := w.open()
	if err != nil {
		return fmt.Errorf("starting nft: %w", err)
	}
	tx := kernel.NewTransaction()
	w.render(tx, p)
	return kernel.Run(ctx, tx)
}

// vxlanPort is the UDP port of VXLAN, which is that of Linux.
const vxlanPort = 8472

// The position in a UDP packet with VXLAN of the number of the virtual network, which is 1 for flannel's, and of the type of the packet
// inside, as nft writes raw payload: base, offset and length in bits.
const innerVNI, innerType = "@th,96,24", "@th,224,16"

// The offsets of the source address of the packet inside.
const innerFrom4, innerFrom6 = 336, 304

// render replaces the table in one transaction.
func (w *wire) render(tx *knftables.Transaction, p peers) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	chain := func(name string, hook knftables.BaseChainHook, rules ...string) {
		c := &knftables.Chain{Name: name}
		if hook != "" {
			c.Type, c.Hook, c.Priority = knftables.PtrTo(knftables.FilterType), &hook, knftables.PtrTo(knftables.FilterPriority)
		}
		tx.Add(c)
		for _, r := range rules {
			tx.Add(&knftables.Rule{Chain: name, Rule: r})
		}
	}
	for version, kind := range []string{4: "ipv4_addr", 6: "ipv6_addr"} {
		if kind != "" {
			tx.Add(&knftables.Set{Name: fmt.Sprint("nodes", version), Type: kind})
			tx.Add(&knftables.Map{Name: fmt.Sprint("senders", version), Type: kind + " : verdict"})
		}
	}
	// One chain for each address is much faster than one set of addresses with ranges: looking up intervals of two fields saves the
	// registers of vector instructions.
	for _, addr := range slices.SortedFunc(maps.Keys(p), netip.Addr.Compare) {
		version := map[bool]string{true: "4", false: "6"}[addr.Is4()]
		name := fmt.Sprintf("from-%x", addr.AsSlice())
		chain(name, "", senderRules(p[addr])...)
		tx.Add(&knftables.Element{Set: "nodes" + version, Key: []string{addr.String()}})
		tx.Add(&knftables.Element{Map: "senders" + version, Key: []string{addr.String()}, Value: []string{"jump " + name}})
	}
	// Others may use this port for virtual networks with other numbers. What is too short for a rule does not match it.
	others := innerVNI + " != 1 return"
	chain("vxlan", "", others, "ip saddr vmap @senders4", "ip6 saddr vmap @senders6", "counter drop")
	chain("to-node", "", others, "ip daddr @nodes4 counter drop", "ip6 daddr @nodes6 counter drop")
	chain("input", knftables.InputHook, fmt.Sprintf("udp dport %d jump vxlan", vxlanPort))
	forward := []string{
		fmt.Sprintf("iifname %s udp dport %d jump to-node", w.bridge, vxlanPort),
		fmt.Sprintf("udp dport %d ct status dnat jump to-node", vxlanPort), // a Service may have a node's port as its endpoint
	}
	ours := []string{w.bridge, footprint.VXLAN, footprint.VXLAN6, footprint.WireGuard, footprint.WireGuard6}
	for _, cidr := range w.cidrs {
		ip := "ip"
		if cidr.Addr().Is6() {
			ip = "ip6"
		}
		forward = append(forward, fmt.Sprintf("iifname != { %s } %s saddr %s counter drop", strings.Join(ours, ", "), ip, cidr.Masked()))
	}
	chain("forward", knftables.ForwardHook, forward...)
}

// senderRules accept VXLAN with packets from these ranges.
func senderRules(ranges []netip.Prefix) (rules []string) {
	for _, p := range ranges {
		kind, offset := "0x0800", innerFrom4
		if p.Addr().Is6() {
			kind, offset = "0x86dd", innerFrom6
		}
		value := new(big.Int).SetBytes(p.Masked().Addr().AsSlice())
		value.Rsh(value, uint(p.Addr().BitLen()-p.Bits()))
		rules = append(rules, fmt.Sprintf("%s %s @th,%d,%d 0x%x accept", innerType, kind, offset, p.Bits(), value))
	}
	return rules
}
