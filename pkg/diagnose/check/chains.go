package check

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// closedChains returns the chains of this network namespace that drop or reject what no rule accepts.
func closedChains() (out []closedChain, err error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, err
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("listing chains: %w", err)
	}
	for _, c := range chains {
		family := families[c.Table.Family]
		if family == "" || c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward && *c.Hooknum != *nftables.ChainHookInput {
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return nil, fmt.Errorf("listing rules: %w", err)
		}
		drops := c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
		if !drops && (len(rules) == 0 || !refusesAll(rules[len(rules)-1])) {
			continue
		}
		r := &ruleReader{conn: conn, chains: chains}
		r.follow(c, rules, 0)
		out = append(out, closedChain{
			name:    fmt.Sprintf("%s %s %s", family, c.Table.Name, c.Name),
			forward: *c.Hooknum == *nftables.ChainHookForward,
			v4:      c.Table.Family != nftables.TableFamilyIPv6, v6: c.Table.Family != nftables.TableFamilyIPv4,
			policy: drops, matches: r.matches,
		})
	}
	return out, nil
}

// refusesAll reports whether a rule drops or rejects every packet that reaches it.
func refusesAll(rule *nftables.Rule) bool {
	for _, e := range rule.Exprs {
		switch e := e.(type) {
		case *expr.Reject:
			return true
		case *expr.Verdict:
			return e.Kind == expr.VerdictDrop
		case *expr.Counter, *expr.Log, *expr.Limit:
		default:
			return false
		}
	}
	return false
}

// ruleReader collects the values that the accepting rules of a chain, and of chains that it jumps to, compare packets with.
type ruleReader struct {
	conn   *nftables.Conn
	chains []*nftables.Chain

	values [][]byte
	ranges [][2][]byte
	any    bool // a rule accepts every packet
}

// maxDepth is the number of jumps that are followed.
const maxDepth = 6

func (r *ruleReader) follow(c *nftables.Chain, rules []*nftables.Rule, depth int) {
	for _, rule := range rules {
		verdict, conditional := r.read(rule)
		if verdict == nil || verdict.Kind == expr.VerdictDrop || verdict.Kind == expr.VerdictReturn {
			continue
		}
		if verdict.Kind == expr.VerdictAccept {
			r.any = r.any || !conditional && depth == 0
			continue
		}
		for _, next := range r.chains {
			if next.Name != verdict.Chain || next.Table.Name != c.Table.Name || next.Table.Family != c.Table.Family || depth == maxDepth {
				continue
			}
			if rules, err := r.conn.GetRules(next.Table, next); err == nil { // otherwise it has just been removed
				r.follow(next, rules, depth+1)
			}
		}
	}
}

// read adds the values that a rule compares with. conditional reports that the rule does not apply to every packet.
func (r *ruleReader) read(rule *nftables.Rule) (verdict *expr.Verdict, conditional bool) {
	var low []byte
	var values [][]byte
	var ranges [][2][]byte
	for _, e := range rule.Exprs {
		switch e := e.(type) {
		case *expr.Verdict:
			verdict = e
		case *expr.Counter:
		case *expr.Cmp:
			conditional = true
			switch e.Op {
			case expr.CmpOpGte:
				low = e.Data
			case expr.CmpOpLte:
				ranges = append(ranges, [2][]byte{low, e.Data})
			default:
				values = append(values, e.Data)
			}
		case *expr.Range:
			conditional, ranges = true, append(ranges, [2][]byte{e.FromData, e.ToData})
		case *expr.Lookup:
			conditional = true
			values = append(values, r.elements(rule.Table, e)...)
		case *expr.Match:
			conditional = true
			ranges = append(ranges, portsOf(e)...)
		default:
			conditional = true
		}
	}
	if verdict != nil && verdict.Kind != expr.VerdictDrop {
		r.values, r.ranges = append(r.values, values...), append(r.ranges, ranges...)
	}
	return verdict, conditional
}

// elements returns the keys of a set; none if it cannot be read.
func (r *ruleReader) elements(table *nftables.Table, e *expr.Lookup) (keys [][]byte) {
	set, err := r.conn.GetSetByName(table, e.SetName)
	if err != nil {
		return nil
	}
	elements, err := r.conn.GetSetElements(set)
	if err != nil {
		return nil
	}
	for _, one := range elements {
		keys = append(keys, one.Key)
	}
	return keys
}

// portsOf returns the destination ports of a match of iptables' extension tcp or udp.
func portsOf(e *expr.Match) [][2][]byte {
	data, ok := e.Info.(*xt.Unknown)
	if !ok || e.Name != "tcp" && e.Name != "udp" || len(*data) < 8 {
		return nil
	}
	port := func(at int) []byte {
		return binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16((*data)[at:]))
	}
	return [][2][]byte{{port(4), port(6)}}
}

// matches is closedChain.matches.
func (r *ruleReader) matches(data []byte) bool {
	if r.any {
		return true
	}
	for _, v := range r.values {
		if bytes.Equal(bytes.TrimRight(v, "\x00"), bytes.TrimRight(data, "\x00")) {
			return true
		}
	}
	for _, v := range r.ranges {
		if len(v[0]) == len(data) && bytes.Compare(v[0], data) <= 0 && bytes.Compare(data, v[1]) <= 0 {
			return true
		}
	}
	return false
}
