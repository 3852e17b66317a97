package portguard

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
)

// table is the nft table of the ports, as it is to be.
type table struct {
	conn  *nftables.Conn
	table *nftables.Table
	ports *nftables.Set // the names of the ports with rules: others, such as those of other programs, may send anything
	// own4 and own6 are what may be sent: port, MAC and IP address.
	own4, own6 *nftables.Set
}

func newTable(conn *nftables.Conn) (t table, err error) {
	_, name, _ := strings.Cut(footprint.PortTable, " ")
	t = table{conn: conn, table: &nftables.Table{Family: nftables.TableFamilyBridge, Name: name}}
	t.ports = &nftables.Set{Table: t.table, Name: "ports", KeyType: nftables.TypeIFName, KeyByteOrder: binaryutil.NativeEndian}
	t.own4 = &nftables.Set{Table: t.table, Name: "own4", Concatenation: true}
	t.own6 = &nftables.Set{Table: t.table, Name: "own6", Concatenation: true}
	if t.own4.KeyType, err = nftables.ConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr, nftables.TypeIPAddr); err == nil {
		t.own6.KeyType, err = nftables.ConcatSetType(nftables.TypeIFName, nftables.TypeEtherAddr, nftables.TypeIP6Addr)
	}
	return t, err
}

// chunk is how many elements a message has at most: the kernel takes 64 KiB.
const chunk = 500

// elements calls do with the elements of ports, few times: each call becomes a message, and the kernel's answers to all messages of a
// transaction have to fit into the socket's buffer.
func elements(ports []Port, t table, do func(*nftables.Set, []nftables.SetElement) error) error {
	var names, own4, own6 []nftables.SetElement
	for _, p := range ports {
		// A key has one field after the other, each a multiple of four bytes long.
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, p.Name)
		names = append(names, nftables.SetElement{Key: name})
		sender := slices.Concat(name, p.MAC, []byte{0, 0})
		for _, addr := range append([]netip.Addr{linkLocal(p.MAC)}, p.IPs...) {
			e := nftables.SetElement{Key: slices.Concat(sender, addr.AsSlice())}
			if addr.Is4() {
				own4 = append(own4, e)
			} else {
				own6 = append(own6, e)
			}
		}
	}
	for set, all := range map[*nftables.Set][]nftables.SetElement{t.ports: names, t.own4: own4, t.own6: own6} {
		for some := range slices.Chunk(all, chunk) {
			if err := do(set, some); err != nil {
				return fmt.Errorf("naming the addresses of ports in the set %s: %w", set.Name, err)
			}
		}
	}
	return nil
}

func (t table) add(ports ...Port) error    { return elements(ports, t, t.conn.SetAddElements) }
func (t table) remove(ports ...Port) error { return elements(ports, t, t.conn.SetDeleteElements) }

// tidy removes the elements of ports that do not exist.
func (t table) tidy() error {
	all := map[*nftables.Set][]nftables.SetElement{}
	for _, set := range []*nftables.Set{t.ports, t.own4, t.own6} {
		found, err := t.conn.GetSetElements(set)
		if err != nil {
			return err
		}
		all[set] = found
	}
	links, err := net.Interfaces() // after the elements: a port exists before it has any
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	exists := map[string]bool{}
	for _, l := range links {
		exists[l.Name] = true
	}
	for set, found := range all {
		gone := slices.DeleteFunc(found, func(e nftables.SetElement) bool {
			return len(e.Key) < unix.IFNAMSIZ || exists[unix.ByteSliceToString(e.Key[:unix.IFNAMSIZ])]
		})
		for some := range slices.Chunk(gone, chunk) {
			if err := t.conn.SetDeleteElements(set, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkLocal is the address that the kernel derives from a MAC (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// Registers for the fields of a key. The first one also holds what is compared before.
const (
	regName = unix.NFT_REG32_00
	regMAC  = unix.NFT_REG32_04
	regIP   = unix.NFT_REG32_06
)

// make makes the table, or replaces its rules and keeps the elements.
func (t table) make() error {
	t.conn.AddTable(t.table)
	for _, s := range []*nftables.Set{t.ports, t.own4, t.own6} {
		if err := t.conn.AddSet(s, nil); err != nil {
			return fmt.Errorf("making the set %s: %w", s.Name, err)
		}
	}
	chain := t.conn.AddChain(&nftables.Chain{
		Name: "prerouting", Table: t.table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
		// Before the bridge learns where a MAC is, before policies, and before packets of pods pass the IP hooks.
		Priority: nftables.ChainPriorityRef(-310),
	})
	t.conn.FlushChain(chain)
	for _, r := range t.rules() {
		t.conn.AddRule(&nftables.Rule{Table: t.table, Chain: chain, Exprs: r})
	}
	return nil
}

// rules are the rules, the one for most packets first.
func (t table) rules() [][]expr.Any {
	const (
		ip, arp, ip6                = unix.ETH_P_IP, unix.ETH_P_ARP, unix.ETH_P_IPV6
		advertisement, router, away = 136, 134, 137 // types of ICMPv6: neighbour advertisement, router advertisement, redirect
	)
	load := func(base expr.PayloadBase, offset, size, register uint32) expr.Any {
		return &expr.Payload{Base: base, Offset: offset, Len: size, DestRegister: register}
	}
	const ether, network, transport = expr.PayloadBaseLLHeader, expr.PayloadBaseNetworkHeader, expr.PayloadBaseTransportHeader
	compare := func(with ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: regName, Data: with} }
	port, fromEther := &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: regName}, load(ether, 6, 6, regMAC)
	in := func(set *nftables.Set, not bool) expr.Any {
		return &expr.Lookup{SourceRegister: regName, SetName: set.Name, Invert: not}
	}
	drop, accept := []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}, &expr.Verdict{Kind: expr.VerdictAccept}
	rule := func(kind uint16, exprs ...expr.Any) []expr.Any {
		return append([]expr.Any{load(ether, 12, 2, regName), compare(byte(kind>>8), byte(kind))}, exprs...)
	}
	icmp := func(kind byte, exprs ...expr.Any) []expr.Any {
		return rule(ip6, append(append([]expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regName}, compare(unix.IPPROTO_ICMPV6),
			load(transport, 0, 1, regName), compare(kind)}, exprs...), drop...)...)
	}
	return [][]expr.Any{
		rule(ip, port, fromEther, load(network, 12, 4, regIP), in(t.own4, false), accept),
		{port, in(t.ports, true), accept},
		// ARP names the sender twice.
		rule(arp, append([]expr.Any{port, fromEther, load(network, 14, 4, regIP), in(t.own4, true)}, drop...)...),
		rule(arp, port, load(network, 8, 6, regMAC), load(network, 14, 4, regIP), in(t.own4, false), accept),
		icmp(router),
		icmp(away),
		icmp(advertisement, port, fromEther, load(transport, 8, 16, regIP), in(t.own6, true)), // of an address that is not the pod's
		rule(ip6, port, fromEther, load(network, 8, 16, regIP), in(t.own6, false), accept),
		drop,
	}
}
