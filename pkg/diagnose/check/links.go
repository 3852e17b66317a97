package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// links makes interfaces of the kinds that a node makes for its pods, in a network namespace of its own.
func links(_ context.Context, m *Machine) []Verdict {
	if m.Config.Network.Backend == config.BackendNone {
		return Skipf("another plugin provides the pod network (--flannel-backend=none)")
	}
	var out []Verdict
	err := inNamespaces(unix.CLONE_NEWNET, func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "b0"}}
		out = append(out, made("bridge", "connects the pods of this node", netlink.LinkAdd(bridge))...)
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}
		err := netlink.LinkAdd(veth)
		if err == nil && out == nil {
			err = netlink.LinkSetMaster(veth, bridge)
		}
		out = append(out, made("veth", "connects a pod to its node", err)...)
		if m.Config.Network.Backend == config.VXLAN {
			out = append(out, made("vxlan", "connects the pods of different nodes (or choose --flannel-backend=host-gw)",
				netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "x0"}, VxlanId: 1, Port: 8472, Learning: false}))...)
		}
		if m.Config.Network.Backend == config.WireGuard {
			out = append(out, made("wireguard", "encrypts packets of pods between nodes (or choose --flannel-backend=vxlan)",
				netlink.LinkAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "w0"}, LinkType: "wireguard"}))...)
		}
		return nil
	})
	if v := m.withoutNamespaces(err); v != nil {
		return v
	}
	return Else(out, Okf("bridge, veth%s", map[config.Backend]string{config.VXLAN: ", vxlan", config.WireGuard: ", wireguard"}[m.Config.Network.Backend]))
}

// made judges the error of making a link.
func made(kind, use string, err error) []Verdict {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EOPNOTSUPP):
		return Failf("load or build in the module "+kind, "the kernel has no %s links, and one %s", kind, use)
	case errors.Is(err, unix.EPERM):
		return Failf("in a container, start it with --privileged, or add CAP_NET_ADMIN", "making a %s link is not permitted", kind)
	}
	// Such an error may be temporary. If it is not, the node reports it when it makes the link.
	return Warnf("load or build in the module "+kind, "a %s link, which %s, cannot be made: %v", kind, use, err)
}

// ruleset makes one of each nftables object that kube-proxy and flannel make, in a network namespace of its own.
func ruleset(_ context.Context, m *Machine) []Verdict {
	var missing []string
	err := inNamespaces(unix.CLONE_NEWNET, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		t := &nftables.Table{Name: "try", Family: nftables.TableFamilyIPv4}
		conn.AddTable(t)
		if err := conn.Flush(); err != nil || m.starting {
			return err
		}
		for _, part := range parts(conn, t) {
			if part.add() != nil || conn.Flush() != nil {
				missing = append(missing, part.name)
			}
		}
		return nil
	})
	if v := m.withoutNamespaces(err); v != nil {
		return v
	}
	switch {
	case err != nil:
		return Failf("load or build in the module nf_tables", "the kernel has no nftables (%v), which Services need", err)
	case missing != nil:
		return Failf("load or build in the modules of nftables: nf_nat, nft_chain_nat, nft_masq, nft_ct, nft_fib_ipv4, nft_reject, nft_numgen",
			"the kernel's nftables lacks %s", strings.Join(missing, ", "))
	}
	return Okf("sets, maps, translation, masquerade, fib, numgen, conntrack and reject")
}

type part struct {
	name string
	add  func() error
}

// parts returns the kinds of nftables objects that Services and the pod network need.
func parts(conn *nftables.Conn, t *nftables.Table) []part {
	nat := &nftables.Chain{Name: "nat", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource}
	plain := &nftables.Chain{Name: "plain", Table: t}
	rule := func(chain *nftables.Chain, exprs ...expr.Any) func() error {
		return func() error {
			conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: exprs})
			return nil
		}
	}
	chain := func(c *nftables.Chain) func() error {
		return func() error {
			conn.AddChain(c)
			return nil
		}
	}
	return []part{
		{"sets", func() error {
			return conn.AddSet(&nftables.Set{Table: t, Name: "s", KeyType: nftables.TypeIPAddr, HasTimeout: true}, nil)
		}},
		{"chains", chain(plain)},
		{"verdict maps", func() error {
			return conn.AddSet(&nftables.Set{Table: t, Name: "m", KeyType: nftables.TypeInetService, DataType: nftables.TypeVerdict, IsMap: true}, nil)
		}},
		{"nat chains", chain(nat)},
		{"masquerade", rule(nat, &expr.Masq{})},
		{"fib", rule(plain, &expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true})},
		{"numgen", rule(plain, &expr.Numgen{Register: 1, Modulus: 2, Type: unix.NFT_NG_RANDOM})},
		{"conntrack", rule(plain, &expr.Ct{Register: 1, Key: expr.CtKeySTATE})},
		{"reject", rule(plain, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3})},
	}
}

func bridgeNetfilter(_ context.Context, m *Machine) []Verdict {
	const name = "br_netfilter"
	if m.starting && m.Config.Network.Backend == config.BackendNone || m.exists("/proc/sys/net/bridge/bridge-nf-call-iptables") {
		return Okf("%s is loaded", name)
	}
	if m.hasModule(name) {
		return Okf("%s is not loaded yet; coracle does that when it starts", name)
	}
	return Warnf(fmt.Sprintf("run modprobe %s on the host (a container cannot)", name),
		"the kernel's %s is not loaded and cannot be found: pods of one node do not reach each other through a Service", name)
}

func conntrack(_ context.Context, m *Machine) []Verdict {
	return judgeConntrack(m.read("/proc/sys/net/netfilter/nf_conntrack_count"), m.read("/proc/sys/net/netfilter/nf_conntrack_max"))
}

func judgeConntrack(count, most string) []Verdict {
	var have, limit int
	if n, _ := fmt.Sscan(count+" "+most, &have, &limit); n < 2 || limit == 0 {
		return Okf("not in use yet")
	}
	if have > limit*8/10 {
		return Warnf("sysctl -w net.netfilter.nf_conntrack_max="+fmt.Sprint(limit*2),
			"%d of %d connections are in the table; when it is full, the kernel drops new ones", have, limit)
	}
	return Okf("%d of %d connections", have, limit)
}
