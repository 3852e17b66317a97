package nft

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

// Chain is a chain of a family that sees packets of IP.
type Chain struct {
	// Name is family, table and chain, as nft's command line has them: "ip filter FORWARD".
	Name  string
	conn  *nftables.Conn
	chain *nftables.Chain
}

// Chains lists the chains of the families ip, ip6 and inet.
func Chains() ([]Chain, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	found, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("listing nft chains: %w", err)
	}
	var chains []Chain
	for _, c := range found {
		switch c.Table.Family {
		case nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyINet:
			chains = append(chains, Chain{Name: chainName(c.Table.Family, c.Table.Name, c.Name), conn: conn, chain: c})
		}
	}
	return chains, nil
}

func chainName(family nftables.TableFamily, table, chain string) string {
	return families[family] + " " + table + " " + chain
}

// dropsForwarded reports whether the chain drops what is forwarded and no rule of it lets through.
func (c Chain) dropsForwarded() bool {
	return c.chain.Hooknum != nil && *c.chain.Hooknum == *nftables.ChainHookForward &&
		c.chain.Policy != nil && *c.chain.Policy == nftables.ChainPolicyDrop
}

// Marked is how many rules of the chain carry a comment. A chain that is gone has none.
func (c Chain) Marked(comment string) (int, error) {
	rules, err := c.marked(comment)
	return len(rules), err
}

func (c Chain) marked(comment string) (ours []*nftables.Rule, err error) {
	rules, err := c.conn.GetRules(c.chain.Table, c.chain)
	if err != nil { // not because the chain is gone: then there are none
		return nil, fmt.Errorf("listing the rules of nft chain %s: %w", c.Name, err)
	}
	for _, r := range rules {
		if text, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok && text == comment {
			ours = append(ours, r)
		}
	}
	return ours, nil
}

// DeleteMarked removes the rules of the chain that carry a comment. It is no error if they are gone, or the chain is.
func (c Chain) DeleteMarked(comment string) error {
	rules, err := c.marked(comment)
	if err != nil || len(rules) == 0 {
		return err
	}
	for _, r := range rules {
		if err := c.conn.DelRule(r); err != nil {
			return fmt.Errorf("removing a rule from nft chain %s: %w", c.Name, err)
		}
	}
	if err := c.conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing rules from nft chain %s: %w", c.Name, err)
	}
	return nil
}

// passage is a rule that accepts what comes from a network, or goes to it.
type passage struct {
	network netip.Prefix
	to      bool
}

// passages are the rules that let packets of networks through a chain, as far as it sees their family.
func (c Chain) passages(networks []netip.Prefix) (out []passage) {
	for _, n := range networks {
		if f := c.chain.Table.Family; f == nftables.TableFamilyINet || n.Addr().Is4() == (f == nftables.TableFamilyIPv4) {
			out = append(out, passage{network: n.Masked()}, passage{network: n.Masked(), to: true})
		}
	}
	return out
}

// lacking are those of the passages for networks that are not in the chain with our comment.
func (c Chain) lacking(networks []netip.Prefix, comment string) (out []passage, err error) {
	have, err := c.marked(comment)
	if err != nil {
		return nil, err
	}
next:
	for _, p := range c.passages(networks) {
		for _, r := range have {
			if p.is(r) {
				continue next
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// add puts rules at the end of the chain, all or none.
func (c Chain) add(rules []passage, comment string) error {
	for _, p := range rules {
		c.conn.AddRule(&nftables.Rule{Table: c.chain.Table, Chain: c.chain, Exprs: p.exprs(c.chain.Table.Family),
			UserData: userdata.AppendString(nil, userdata.TypeComment, comment)})
	}
	if err := c.conn.Flush(); err != nil {
		return fmt.Errorf("adding rules to nft chain %s: %w", c.Name, err)
	}
	return nil
}

// is reports whether a rule with our comment is this one.
func (p passage) is(r *nftables.Rule) bool {
	offset, size := p.field()
	at, address := false, p.network.Addr().AsSlice()
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Payload:
			at = e.Offset == offset && e.Len == size
		case *expr.Cmp:
			if at && bytes.Equal(e.Data, address) {
				return true
			}
		}
	}
	return false
}

// field is where the address stands in the header of a packet.
func (p passage) field() (offset, size uint32) {
	source, size := uint32(12), uint32(4)
	if p.network.Addr().Is6() {
		source, size = 8, 16
	}
	if p.to {
		return source + size, size
	}
	return source, size
}

// exprs is the rule in the form that every nft and iptables can read: a table that iptables cannot read is lost to Docker.
func (p passage) exprs(family nftables.TableFamily) (out []expr.Any) {
	const register = 1
	if family == nftables.TableFamilyINet {
		protocol := byte(unix.NFPROTO_IPV4)
		if p.network.Addr().Is6() {
			protocol = unix.NFPROTO_IPV6
		}
		out = append(out, &expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{protocol}})
	}
	offset, size := p.field()
	mask := make([]byte, size)
	for i := range p.network.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return append(out, &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: p.network.Addr().AsSlice()},
		&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept})
}
