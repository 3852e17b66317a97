package networkpolicy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// policy is a NetworkPolicy with its selectors read and its rules made.
type policy struct {
	name    string
	subject labels.Selector
	// allowed is what it allows in each direction; nil if it says nothing about that direction.
	allowed [directions]*ruleset
}

// ruleset is what one policy allows in one direction.
type ruleset struct {
	key   string // of its content
	rules []rule
}

// podsOf selects pods as a peer of a policy does.
type podsOf struct {
	namespace  string          // of the policy, if the peer has no namespaceSelector
	namespaces labels.Selector // otherwise
	pods       labels.Selector
}

// wide reports whether the pods may be in several namespaces.
func (p podsOf) wide() bool { return p.namespaces != nil }

func (p podsOf) String() string {
	if p.wide() {
		return "(" + p.namespaces.String() + ")/(" + p.pods.String() + ")"
	}
	return p.namespace + "/(" + p.pods.String() + ")"
}

// groupSpec says which pods are in a group: those that any of its peers selects.
type groupSpec struct {
	key   string // of its content: policies with the same peers share a group
	peers []podsOf
}

// wide reports whether the pods may be in several namespaces.
func (s *groupSpec) wide() bool { return slices.ContainsFunc(s.peers, podsOf.wide) }

// namespace is the one that all pods of a group are in which is not wide: that of the policy.
func (s *groupSpec) namespace() string { return s.peers[0].namespace }

func newGroupSpec(peers []podsOf) *groupSpec {
	slices.SortFunc(peers, func(a, b podsOf) int { return strings.Compare(a.String(), b.String()) })
	peers = slices.CompactFunc(peers, func(a, b podsOf) bool { return a.String() == b.String() })
	texts := make([]string, len(peers))
	for i, p := range peers {
		texts[i] = p.String()
	}
	return &groupSpec{key: digest(texts...), peers: peers}
}

// compile reads a policy for a cluster with addresses of these families. With an error, what could be read of it holds;
// if it cannot be told which pods it is about, it is about all of its namespace, and allows nothing.
func compile(p *networkingv1.NetworkPolicy, families []family) (*policy, error) {
	subject, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	in, eg := typesOf(p.Spec)
	c := compiler{namespace: p.Namespace, families: families}
	spec := p.Spec
	if err != nil {
		c.fail(fmt.Errorf("reading podSelector: %w; all pods of the namespace are cut off", err))
		subject, spec.Ingress, spec.Egress = labels.Everything(), nil, nil
	}
	out := &policy{name: p.Name, subject: subject}
	if in {
		for _, r := range spec.Ingress {
			c.add(ingress, r.From, r.Ports)
		}
		out.allowed[ingress] = c.take()
	}
	if eg {
		for _, r := range spec.Egress {
			c.add(egress, r.To, r.Ports)
		}
		out.allowed[egress] = c.take()
	}
	return out, c.err
}

// typesOf says in which directions a policy isolates. The API server fills policyTypes in; without them it is as there.
func typesOf(s networkingv1.NetworkPolicySpec) (in, eg bool) {
	if len(s.PolicyTypes) == 0 {
		return true, len(s.Egress) > 0
	}
	return slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress), slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// compiler makes rules.
type compiler struct {
	namespace string
	families  []family
	rules     []rule
	err       error // the first; what it is about allows nothing
}

func (c *compiler) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// take returns the rules made since the last call.
func (c *compiler) take() *ruleset {
	texts := make([]string, len(c.rules))
	for i, r := range c.rules {
		texts[i] = r.text()
	}
	out := &ruleset{key: digest(texts...), rules: c.rules}
	c.rules = nil
	return out
}

// add makes the rules of one rule of a policy: each kind of peer with each kind of port.
func (c *compiler) add(d direction, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	for _, to := range c.ports(ports) {
		for _, from := range c.peers(peers) {
			r := rule{direction: d, family: from.family, group: from.group, block: from.block,
				proto: to.proto, ports: to.ports, named: to.named}
			if r.named == "" || r.family != 0 {
				c.rules = append(c.rules, r)
				continue
			}
			for _, f := range c.families { // sets of named ports are of one family
				r.family = f
				c.rules = append(c.rules, r)
			}
		}
	}
}

// peers returns rules for the peers alone.
func (c *compiler) peers(peers []networkingv1.NetworkPolicyPeer) []rule {
	if len(peers) == 0 {
		return []rule{{}}
	}
	var pods []podsOf
	var blocks []*networkingv1.IPBlock
	for _, p := range peers {
		if p.IPBlock != nil {
			blocks = append(blocks, p.IPBlock)
			continue
		}
		selected, err := c.podsOf(p)
		if err != nil {
			c.fail(err)
			continue
		}
		pods = append(pods, selected)
	}
	ranges, err := blockRanges(blocks)
	if err != nil {
		c.fail(err)
		ranges = nil
	}
	var group *groupSpec
	if len(pods) > 0 {
		group = newGroupSpec(pods)
	}
	var out []rule
	for _, f := range c.families {
		if group != nil {
			out = append(out, rule{family: f, group: group})
		}
		own := slices.DeleteFunc(slices.Clone(ranges), func(r addressRange) bool { return familyOf(r.From()) != f })
		if len(own) > 0 {
			out = append(out, rule{family: f, block: own})
		}
	}
	return out
}

// podsOf reads a peer that selects pods. A selector that is there and empty selects all.
func (c *compiler) podsOf(p networkingv1.NetworkPolicyPeer) (podsOf, error) {
	out := podsOf{namespace: c.namespace, pods: labels.Everything()}
	var err error
	if p.PodSelector != nil {
		if out.pods, err = metav1.LabelSelectorAsSelector(p.PodSelector); err != nil {
			return out, fmt.Errorf("reading the podSelector of a peer: %w", err)
		}
	}
	if p.NamespaceSelector != nil {
		out.namespace = ""
		if out.namespaces, err = metav1.LabelSelectorAsSelector(p.NamespaceSelector); err != nil {
			return out, fmt.Errorf("reading the namespaceSelector of a peer: %w", err)
		}
	}
	return out, nil
}

// ports returns rules for the ports alone: one for the numbers of each protocol, and one for each name.
func (c *compiler) ports(ports []networkingv1.NetworkPolicyPort) []rule {
	if len(ports) == 0 {
		return []rule{{}}
	}
	numbers := map[string][]portRange{}
	whole := map[string]bool{} // protocols that are allowed on every port
	var out []rule
	for _, p := range ports {
		proto := protocol(p.Protocol)
		switch {
		case p.Port == nil:
			whole[proto] = true
		case p.Port.Type == intstr.String:
			out = append(out, rule{proto: proto, named: p.Port.StrVal})
		default:
			s := portRange{uint16(p.Port.IntVal), uint16(p.Port.IntVal)}
			if p.EndPort != nil {
				s.to = uint16(*p.EndPort)
			}
			numbers[proto] = append(numbers[proto], s)
		}
	}
	for _, proto := range []string{"tcp", "udp", "sctp"} {
		switch {
		case whole[proto]:
			out = append(out, rule{proto: proto})
		case len(numbers[proto]) > 0:
			out = append(out, rule{proto: proto, ports: mergedPorts(numbers[proto])})
		}
	}
	return out
}

// protocol is nft's name of a protocol. None is TCP.
func protocol(p *corev1.Protocol) string {
	if p == nil || *p == "" {
		return "tcp"
	}
	return strings.ToLower(string(*p))
}

// protocolOf is nft's name of a container port's protocol.
func protocolOf(p corev1.Protocol) string { return protocol(&p) }
