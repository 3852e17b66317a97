package kubeproxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// DropUntranslated has the kernel drop new connections to Services that kube-proxy's rules do not translate: all until it has written them, some seconds after a
// boot, and later those to addresses of no Service. Otherwise their packets leave the node: whoever receives them can answer for the Service, and as a
// connection is translated by its first packet or never, it does not reach the Service later either. Of a packet that is dropped, the kernel remembers no
// connection.
//
// kube-proxy has such a rule itself, but writes it only when it has heard of the networks of Services, which may be after its first sync, and then an hour later
// (v1.37.1, OnServiceCIDRsChanged of mode nftables asks for no sync). This one is in chains of its own in kube-proxy's table, behind kube-proxy's, which refuse
// connections to Services without endpoints. In its other modes kube-proxy removes the table.
func DropUntranslated(services []netip.Prefix) (err error) {
	for _, s := range services {
		if failed := dropUntranslated(s); failed != nil {
			err = errors.Join(err, fmt.Errorf("dropping connections to Services (%s) that do not exist: %w", s, failed))
		}
	}
	return err
}

func dropUntranslated(services netip.Prefix) error {
	family, destination := nftables.TableFamilyIPv4, uint32(16)
	if services.Addr().Is6() {
		family, destination = nftables.TableFamilyIPv6, 24
	}
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: family, Name: "kube-proxy"})
	for name, hook := range map[string]*nftables.ChainHook{"coracle-forward": nftables.ChainHookForward, "coracle-output": nftables.ChainHookOutput} {
		chain := conn.AddChain(&nftables.Chain{
			Table: table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityRef(*nftables.ChainPriorityFilter + 1),
		})
		conn.FlushChain(chain)
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: toServices(services, destination)})
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
