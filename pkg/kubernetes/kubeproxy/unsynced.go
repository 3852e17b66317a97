package kubeproxy

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// DropUntilSynced has the kernel drop new connections to Services until kube-proxy has written its rules, some seconds after a boot. Otherwise their
// packets leave the node: whoever receives them can answer for the Service, and as a connection is translated by its first packet or never, it does not
// reach the Service later either. Of a packet that is dropped, the kernel remembers no connection.
//
// The rules are those of kube-proxy for addresses of Services that do not exist, in chains of its table, which it replaces. A table that exists stays as it is.
func DropUntilSynced(services []netip.Prefix) error {
	for _, s := range services {
		if err := dropUntilSynced(s); err != nil {
			return fmt.Errorf("dropping connections to Services (%s) until kube-proxy runs: %w", s, err)
		}
	}
	return nil
}

func dropUntilSynced(services netip.Prefix) error {
	family, name, destination := nftables.TableFamilyIPv4, "ip kube-proxy", uint32(16)
	if services.Addr().Is6() {
		family, name, destination = nftables.TableFamilyIPv6, "ip6 kube-proxy", 24
	}
	if there, err := nft.Exists(name); there || err != nil {
		return err
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: family, Name: "kube-proxy"})
	for chain, hook := range map[string]*nftables.ChainHook{"filter-forward": nftables.ChainHookForward, "filter-output": nftables.ChainHookOutput} {
		conn.AddRule(&nftables.Rule{
			Table: table,
			Chain: conn.AddChain(&nftables.Chain{
				Table: table, Name: chain, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter,
			}),
			Exprs: toServices(services, destination),
		})
	}
	return conn.Flush()
}

// toServices matches packets of new connections to services, and drops them. destination is where the IP header has the destination.
func toServices(services netip.Prefix, destination uint32) []expr.Any {
	size := uint32(services.Addr().BitLen() / 8)
	state := binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: state, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: state},
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: destination, Len: size, DestRegister: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: net.CIDRMask(services.Bits(), services.Addr().BitLen()), Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: services.Masked().Addr().AsSlice()},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}
}
