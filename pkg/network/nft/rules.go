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

// Chain is a chain of a family with IP packets.
type Chain struct {
	// Name is family, table and chain, as on nft's command line: "ip filter FORWARD".
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

// Forwards reports whether it is a base chain for forwarded packets.
func (c Chain) Forwards() bool {
	return c.chain.Hooknum != nil && *c.chain.Hooknum == *nftables.ChainHookForward
}

// dropsForwarded reports whether it is a forward chain with the policy drop.
func (c Chain) dropsForwarded() bool {
	return c.Forwards() && c.chain.Policy != nil && *c.chain.Policy == nftables.ChainPolicyDrop
}

// Marked counts the rules of the chain with a comment. A chain that does not exist has none.
func (c Chain) Marked(comment string) (int, error) {
	rules, err := c.marked(comment)
	return len(rules), err
}

func (c Chain) marked(comment string) (ours []*nftables.Rule, err error) {
	rules, err := c.conn.GetRules(c.chain.Table, c.chain)
	if err != nil { // a missing chain is no error
		return nil, fmt.Errorf("listing the rules of nft chain %s: %w", c.Name, err)
	}
	for _, r := range rules {
		if text, ok := userdata.GetString(r.UserData, userdata.TypeComment); ok && text == comment {
			ours = append(ours, r)
		}
	}
	return ours, nil
}

// DeleteMarked deletes the rules of the chain with a comment. Missing rules or a missing chain are no error.
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

// passage is a rule that accepts packets from a network, or to it.
type passage struct {
	network netip.Prefix
	to      bool
}

// passages returns the rules for the networks whose address family the chain has.
func (c Chain) passages(networks []netip.Prefix) (out []passage) {
	for _, n := range networks {
		if f := c.chain.Table.Family; f == nftables.TableFamilyINet || n.Addr().Is4() == (f == nftables.TableFamilyIPv4) {
			out = append(out, passage{network: n.Masked()}, passage{network: n.Masked(), to: true})
		}
	}
	return out
}

// missing returns the passages for networks that the chain does not have with the comment.
func (c Chain) missing(networks []netip.Prefix, comment string) (out []passage, err error) {
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

// add appends rules to the chain in one transaction.
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

// is reports whether a rule with the comment is this passage.
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

// field is the position of the address in the IP header.
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

// exprs is the rule in a form that every version of nft and iptables can list: Docker cannot use a table that iptables cannot list.
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
