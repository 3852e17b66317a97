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

// policy is a compiled NetworkPolicy.
type policy struct {
	name    string
	subject labels.Selector
	// allowed has what the policy allows in each direction; nil if the policy does not isolate in that direction.
	allowed [directions]*ruleset
}

// ruleset is what one policy allows in one direction.
type ruleset struct {
	key   string // digest of rules
	rules []rule
}

// podSelector is a peer of a policy that selects pods.
type podSelector struct {
	namespace  string          // the policy's, if the peer has no namespaceSelector
	namespaces labels.Selector // otherwise
	pods       labels.Selector
}

// crossNamespace reports whether the pods may be in several namespaces.
func (p podSelector) crossNamespace() bool { return p.namespaces != nil }

func (p podSelector) String() string {
	if p.crossNamespace() {
		return "(" + p.namespaces.String() + ")/(" + p.pods.String() + ")"
	}
	return p.namespace + "/(" + p.pods.String() + ")"
}

// groupSpec selects the pods of a group: those that any of its peers selects.
type groupSpec struct {
	key   string // digest of the peers, so that policies with the same peers share a group
	peers []podSelector
}

func newGroupSpec(peers []podSelector) *groupSpec {
	slices.SortFunc(peers, func(a, b podSelector) int { return strings.Compare(a.String(), b.String()) })
	peers = slices.CompactFunc(peers, func(a, b podSelector) bool { return a.String() == b.String() })
	texts := make([]string, len(peers))
	for i, p := range peers {
		texts[i] = p.String()
	}
	return &groupSpec{key: digest(texts...), peers: peers}
}

// compile compiles a policy for a cluster with addresses of these families. With an error it returns the readable part of the policy;
// if the podSelector cannot be read, the policy selects all pods of its namespace and allows nothing.
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

// typesOf returns in which directions a policy isolates. The default for a policy without policyTypes is the API server's.
func typesOf(s networkingv1.NetworkPolicySpec) (in, eg bool) {
	if len(s.PolicyTypes) == 0 {
		return true, len(s.Egress) > 0
	}
	return slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeIngress), slices.Contains(s.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// compiler collects the rules of a policy.
type compiler struct {
	namespace string
	families  []family
	rules     []rule
	err       error // the first error; the part that it is about allows nothing
}

func (c *compiler) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// take returns the rules added since the last call.
func (c *compiler) take() *ruleset {
	texts := make([]string, len(c.rules))
	for i, r := range c.rules {
		texts[i] = r.text()
	}
	out := &ruleset{key: digest(texts...), rules: c.rules}
	c.rules = nil
	return out
}

// add adds the rules of one rule of a policy: each combination of peers and ports.
func (c *compiler) add(d direction, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	for _, to := range c.ports(ports) {
		for _, from := range c.peers(peers) {
			r := rule{direction: d, family: from.family, group: from.group, block: from.block,
				proto: to.proto, ports: to.ports, named: to.named}
			if r.named == "" || r.family != 0 {
				c.rules = append(c.rules, r)
				continue
			}
			for _, f := range c.families { // a set of named ports is of one family
				r.family = f
				c.rules = append(c.rules, r)
			}
		}
	}
}

// peers returns rules that match the peers, and any port.
func (c *compiler) peers(peers []networkingv1.NetworkPolicyPeer) []rule {
	if len(peers) == 0 {
		return []rule{{}}
	}
	var pods []podSelector
	var blocks []*networkingv1.IPBlock
	for _, p := range peers {
		if p.IPBlock != nil {
			blocks = append(blocks, p.IPBlock)
			continue
		}
		selected, err := c.podSelector(p)
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

// podSelector compiles a peer that selects pods. An empty selector selects all.
func (c *compiler) podSelector(p networkingv1.NetworkPolicyPeer) (podSelector, error) {
	out := podSelector{namespace: c.namespace, pods: labels.Everything()}
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

// ports returns rules that match the ports, and any peer: one for the numbers of each protocol, and one for each name.
func (c *compiler) ports(ports []networkingv1.NetworkPolicyPort) []rule {
	if len(ports) == 0 {
		return []rule{{}}
	}
	numbers := map[string][]portRange{}
	whole := map[string]bool{} // protocols with all ports
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

// protocol is the nft name of a protocol. The default is TCP.
func protocol(p *corev1.Protocol) string {
	if p == nil || *p == "" {
		return "tcp"
	}
	return strings.ToLower(string(*p))
}

// protocolOf is the nft name of a container port's protocol.
func protocolOf(p corev1.Protocol) string { return protocol(&p) }
