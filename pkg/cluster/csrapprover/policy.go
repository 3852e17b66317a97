package csrapprover

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const (
	nodeUserPrefix = "system:node:"
	nodeGroup      = "system:nodes"
)

// verdict is the decision on a request. wait marks a denial that a later change of the Node may reverse.
type verdict struct {
	approve bool
	wait    bool
	reason  string
}

func deny(format string, args ...any) verdict { return verdict{reason: fmt.Sprintf(format, args...)} }
func wait(format string, args ...any) verdict {
	return verdict{wait: true, reason: fmt.Sprintf(format, args...)}
}

// policy lists the names and addresses for which no node gets a certificate. The CA also signs the API's serving certificates, and a node
// writes its addresses into its Node object itself: without this list a node could impersonate the API.
type policy struct {
	server   string // the node name of this server, whose Node may not have its label yet
	domain   string
	names    []string
	addrs    []netip.Addr
	prefixes []netip.Prefix
}

func newPolicy(cfg config.Config) policy {
	p := policy{server: cfg.Node.Name, domain: cfg.Network.Domain, prefixes: cfg.Network.ServiceCIDRs}
	p.addrs = append(p.addrs, cfg.API.Advertise, cfg.API.Bind)
	p.addrs = append(p.addrs, cfg.Node.IPs...)
	p.addrs = append(p.addrs, cfg.Node.ExternalIPs...)
	for _, san := range cfg.API.SANs {
		if addr, err := netip.ParseAddr(san); err == nil {
			p.addrs = append(p.addrs, addr.Unmap())
		} else {
			p.names = append(p.names, strings.ToLower(san))
		}
	}
	return p
}

// decide decides on a pending request for a kubelet's serving certificate.
func (p policy) decide(csr *certificates.CertificateSigningRequest, nodes []core.Node) verdict {
	name, ok := strings.CutPrefix(csr.Spec.Username, nodeUserPrefix)
	if !ok || name == "" || !slices.Contains(csr.Spec.Groups, nodeGroup) {
		return deny("%q is not a node", csr.Spec.Username)
	}
	req, err := pki.ParseRequest(csr.Spec.Request)
	if err != nil {
		return deny("reading the request: %v", err)
	}
	if reason := checkForm(csr, req); reason != "" {
		return deny("%s", reason)
	}
	i := slices.IndexFunc(nodes, func(n core.Node) bool { return n.Name == name })
	if i < 0 {
		return wait("there is no Node %s", name)
	}
	if v := p.checkNames(nodes[i], nodes, req); !v.approve {
		return v
	}
	return p.checkAddresses(nodes[i], nodes, req)
}

// decideClient decides on a request for a kubelet's client certificate. A machine that joined gets the kubelet's certificate of its own node
// name. ours is false for requests that others decide on: the controller-manager approves a kubelet's renewal, and an administrator approves
// his own requests.
func decideClient(csr *certificates.CertificateSigningRequest) (v verdict, ours bool) {
	joined, isJoined := strings.CutPrefix(csr.Spec.Username, pki.NodeUser)
	isJoined = isJoined && joined != "" && slices.Contains(csr.Spec.Groups, pki.NodeGroup)
	isKubelet := strings.HasPrefix(csr.Spec.Username, nodeUserPrefix) && slices.Contains(csr.Spec.Groups, nodeGroup)
	if !isJoined && !isKubelet {
		return verdict{}, false
	}
	req, err := pki.ParseRequest(csr.Spec.Request)
	if err != nil {
		return deny("reading the request: %v", err), true
	}
	want := csr.Spec.Username
	if isJoined {
		want = nodeUserPrefix + joined
	}
	switch {
	case req.Subject.CommonName != want:
		return deny("it is for %q, and %s may have one for %s only", req.Subject.CommonName, csr.Spec.Username, want), true
	case isKubelet:
		return verdict{}, false
	case !slices.Equal(req.Subject.Organization, []string{nodeGroup}):
		return deny("the organization must be %s", nodeGroup), true
	case len(req.DNSNames)+len(req.IPAddresses)+len(req.EmailAddresses)+len(req.URIs) > 0:
		return deny("a client certificate has no alternative names"), true
	case !usagesFit(csr.Spec.Usages, certificates.UsageClientAuth):
		return deny("the usages must be digital signature, client auth and at most key encipherment, not %s", fmt.Sprint(csr.Spec.Usages)), true
	}
	return verdict{approve: true}, true
}

// checkForm validates a request without regard to the Node. It returns "" or what is wrong.
func checkForm(csr *certificates.CertificateSigningRequest, req *x509.CertificateRequest) string {
	switch {
	case req.Subject.CommonName != csr.Spec.Username:
		return fmt.Sprintf("the common name %q is not the requestor's, %q", req.Subject.CommonName, csr.Spec.Username)
	case !slices.Equal(req.Subject.Organization, []string{nodeGroup}):
		return fmt.Sprintf("the organization must be %s", nodeGroup)
	case len(req.EmailAddresses) > 0 || len(req.URIs) > 0:
		return "only DNS names and IP addresses are allowed as alternative names"
	case slices.ContainsFunc(req.DNSNames, func(name string) bool { return strings.Contains(name, "*") }):
		return "a DNS name with a wildcard is valid for other nodes too"
	case len(req.DNSNames)+len(req.IPAddresses) == 0:
		return "there is no DNS name or IP address"
	case !usagesFit(csr.Spec.Usages, certificates.UsageServerAuth):
		return fmt.Sprintf("the usages must be digital signature, server auth and at most key encipherment, not %v", csr.Spec.Usages)
	}
	return ""
}

// usagesFit reports whether the usages are digital signature, the given one and, at most, key encipherment, which RSA keys need.
func usagesFit(usages []certificates.KeyUsage, auth certificates.KeyUsage) bool {
	got := slices.DeleteFunc(slices.Clone(usages), func(u certificates.KeyUsage) bool { return u == certificates.UsageKeyEncipherment })
	slices.Sort(got)
	want := []certificates.KeyUsage{certificates.UsageDigitalSignature, auth}
	slices.Sort(want)
	return slices.Equal(got, want)
}

func (p policy) checkNames(node core.Node, nodes []core.Node, req *x509.CertificateRequest) verdict {
	for _, name := range req.DNSNames {
		lower := strings.ToLower(name)
		switch {
		case p.reservedName(node, lower) || p.publishedElsewhere(node, nodes, lower):
			return deny("the name %s belongs to the API or to Services", name)
		case lower != node.Name && !hasAddress(node, lower):
			return wait("the name %s is not among the addresses of Node %s", name, node.Name)
		}
		if other := p.claimedByOther(node, nodes, lower); other != "" {
			return deny("the name %s is Node %s's", name, other)
		}
	}
	return verdict{approve: true}
}

func (p policy) checkAddresses(node core.Node, nodes []core.Node, req *x509.CertificateRequest) verdict {
	for _, ip := range req.IPAddresses {
		addr, _ := netip.AddrFromSlice(ip)
		addr = addr.Unmap()
		switch {
		case p.reservedAddr(node, addr) || p.publishedElsewhere(node, nodes, addr.String()):
			return deny("the address %s belongs to the API, to Services or to the loopback", addr)
		case !hasAddress(node, addr.String()):
			return wait("the address %s is not among those of Node %s", addr, node.Name)
		}
		if other := p.claimedByOther(node, nodes, addr.String()); other != "" {
			return deny("the address %s is Node %s's: give every node addresses of its own, or remove that one if it is gone", addr, other)
		}
	}
	return verdict{approve: true}
}

// reservedName reports whether a name belongs to the API or to a Service. A server's own node may have the names of --tls-san.
func (p policy) reservedName(node core.Node, name string) bool {
	first, rest, dotted := strings.Cut(name, ".")
	switch {
	case first == "kubernetes" && (!dotted || rest == "default" || strings.HasPrefix(rest, "default.")):
		return true
	case strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, "."+p.domain):
		return true
	}
	return !p.isServer(node) && slices.Contains(p.names, name)
}

func (p policy) reservedAddr(node core.Node, addr netip.Addr) bool {
	for _, prefix := range p.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return !p.isServer(node) && (addr.IsLoopback() || addr.IsUnspecified() || slices.Contains(p.addrs, addr))
}

// publishedElsewhere reports whether the API of a server on another node has the name or address.
func (p policy) publishedElsewhere(node core.Node, nodes []core.Node, nameOrAddr string) bool {
	return !p.isServer(node) && slices.ContainsFunc(nodes, func(other core.Node) bool {
		if !p.isServer(other) {
			return false
		}
		for text := range strings.SplitSeq(other.Annotations[kube.APINamesAnnotation], ",") {
			if same(text, nameOrAddr) {
				return true
			}
		}
		return false
	})
}

// isServer reports whether the API is served on a node too.
func (p policy) isServer(node core.Node) bool { return node.Name == p.server || kube.IsServer(&node) }

// claimedByOther returns another Node that has the name or address, or "". Dead Nodes do not count, because the Node of a renamed host stays
// for some time with its addresses. Dead servers do count, because clients would take a machine with a server's address for the
// API. Agents behind one NAT may share its address as their external one.
func (p policy) claimedByOther(node core.Node, nodes []core.Node, nameOrAddr string) string {
	for _, other := range nodes {
		if other.Name == node.Name || !live(other) && !p.isServer(other) {
			continue
		}
		kind, has := addressType(other, nameOrAddr)
		if kind == core.NodeExternalIP && !p.isServer(other) && !p.isServer(node) {
			if own, _ := addressType(node, nameOrAddr); own == core.NodeExternalIP {
				continue
			}
		}
		if has || other.Name == nameOrAddr {
			return other.Name
		}
	}
	return ""
}

func live(node core.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c core.NodeCondition) bool {
		return c.Type == core.NodeReady && c.Status == core.ConditionTrue
	})
}

// hasAddress reports whether a Node lists a name or an address, in its usual spelling, among its addresses.
func hasAddress(node core.Node, nameOrAddr string) bool {
	_, has := addressType(node, nameOrAddr)
	return has
}

// addressType returns the type with which a Node lists a name or an address: InternalIP if that is one of several.
func addressType(node core.Node, nameOrAddr string) (kind core.NodeAddressType, has bool) {
	for _, a := range node.Status.Addresses {
		if same(a.Address, nameOrAddr) && kind != core.NodeInternalIP {
			kind, has = a.Type, true
		}
	}
	return kind, has
}

// same compares a name or an address in any spelling with one in its usual spelling.
func same(text, nameOrAddr string) bool {
	text = strings.ToLower(text)
	if addr, err := netip.ParseAddr(text); err == nil {
		text = addr.Unmap().String()
	}
	return text == nameOrAddr
}
