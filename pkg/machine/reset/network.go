package reset

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// findLinks lists the interfaces in the ledger, before them the pods' ends of veth pairs in its bridges, and the interfaces
// that the CNI plugin bandwidth made for coracle's pods.
func findLinks(_ context.Context, m *machine) ([]Item, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing network interfaces: %w", err)
	}
	ours := map[int]bool{}
	for _, l := range links {
		if m.made(ledger.Link, l.Attrs().Name) {
			ours[l.Attrs().Index] = true
		}
	}
	shapers := m.shapers(links)
	var ends, others []Item
	for _, l := range links {
		switch {
		case ours[l.Attrs().Index]:
			others = append(others, linkItem(l))
		case l.Type() == "veth" && ours[l.Attrs().MasterIndex]:
			ends = append(ends, linkItem(l))
		case l.Type() == "ifb" && shapers[l.Attrs().Name]:
			ends = append(ends, linkItem(l))
		}
	}
	return append(ends, others...), nil
}

func linkItem(l netlink.Link) Item {
	return Item{Kind: "link", Name: l.Attrs().Name, Detail: l.Type(), remove: func(context.Context) error {
		err := netlink.LinkDel(l)
		if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
			return nil // it went with the pod's network namespace
		}
		return err
	}}
}

// shapers returns the names that the CNI plugin bandwidth gives to its interfaces for coracle's pods: a digest of the names of
// network and container, cut to the length that the kernel allows.
func (m *machine) shapers(links []netlink.Link) map[string]bool {
	const prefix, length = "bwp", unix.IFNAMSIZ - 1
	names := map[string]bool{}
	if !slices.ContainsFunc(links, func(l netlink.Link) bool { return strings.HasPrefix(l.Attrs().Name, prefix) }) {
		return names
	}
	for id := range m.seen.ids() {
		sum := sha512.Sum512([]byte(m.seen.network + id))
		names[prefix+hex.EncodeToString(sum[:])[:length-len(prefix)]] = true
	}
	return names
}

// findTables lists the nft tables in the ledger. It uses netlink, because the nft program is in the payload, which may be
// damaged.
func findTables(_ context.Context, m *machine) ([]Item, error) {
	if len(m.entries(ledger.NFTTable)) == 0 {
		return nil, nil
	}
	tables, err := nft.Tables()
	if err != nil {
		return nil, err
	}
	var items []Item
	for _, t := range tables {
		if !m.made(ledger.NFTTable, t.Name) {
			continue
		}
		items = append(items, Item{Kind: "nft table", Name: t.Name, remove: func(context.Context) error {
			if err := t.Delete(); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
			return nil
		}})
	}
	return items, nil
}

// findRules lists the chains of other programs that are in the ledger and still have coracle's rules.
func findRules(_ context.Context, m *machine) ([]Item, error) {
	if len(m.entries(ledger.NFTRule)) == 0 {
		return nil, nil
	}
	chains, err := nft.Chains()
	if err != nil {
		return nil, err
	}
	var items []Item
	for _, c := range chains {
		if !m.made(ledger.NFTRule, c.Name) {
			continue
		}
		rules, err := c.Marked(ledger.RuleComment)
		if err != nil {
			return items, err
		}
		if rules > 0 {
			items = append(items, Item{Kind: "nft rules", Name: c.Name, Detail: fmt.Sprintf("%d with the comment %s", rules, ledger.RuleComment),
				remove: func(context.Context) error { return c.DeleteMarked(ledger.RuleComment) }})
		}
	}
	return items, nil
}

// findRoutes lists the routes to other nodes' pods that flannel's backend host-gw makes. The routes of other backends
// disappear with their interface.
func findRoutes(_ context.Context, m *machine) ([]Item, error) {
	networks := m.podNetworks()
	if len(networks) == 0 {
		return nil, nil
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	var items []Item
	for _, r := range routes {
		if r.Dst == nil || r.Gw == nil || !withinAny(networks, r.Dst) {
			continue
		}
		items = append(items, Item{Kind: "route", Name: fmt.Sprintf("%s via %s", r.Dst, r.Gw), remove: func(context.Context) error {
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			return nil
		}})
	}
	return items, nil
}

func (m *machine) podNetworks() (out []*net.IPNet) {
	for _, e := range m.entries(ledger.PodNetwork) {
		if _, n, err := net.ParseCIDR(e.Name); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// withinAny reports whether a destination lies inside one of the networks.
func withinAny(networks []*net.IPNet, dst *net.IPNet) bool {
	ones, bits := dst.Mask.Size()
	return slices.ContainsFunc(networks, func(n *net.IPNet) bool {
		size, all := n.Mask.Size()
		return bits == all && ones >= size && n.Contains(dst.IP)
	})
}
