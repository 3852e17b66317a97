package csrapprover

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/nodeguard"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const nodeGroup = "system:nodes"

// verdict is the decision on a request. wait marks a denial that a later change of the Node may reverse.
type verdict struct {
	approve bool
	wait    bool
	reason  string
	key     string // of an approved client certificate, as a fingerprint
}

func deny(format string, args ...any) verdict { return verdict{reason: fmt.Sprintf(format, args...)} }
func wait(format string, args ...any) verdict {
	return verdict{wait: true, reason: fmt.Sprintf(format, args...)}
}

// policy lists the names and addresses for which no node gets a certificate. The CA also signs the API's serving certificates, and a node
// writes its addresses into its Node object itself: without this list a node could impersonate the API.
type policy struct {
	server   string // the node name of this server
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
	name, ok := strings.CutPrefix(csr.Spec.Username, nodeguard.KubeletUser)
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
	v := p.checkNames(nodes[i], nodes, req)
	if v.approve {
		v = p.checkAddresses(nodes[i], nodes, req)
	}
	if name == p.server && !kube.IsServer(&nodes[i]) {
		v.wait = !v.approve // the Node gets its label soon, unless another machine has this server's name
	}
	return v
}

// decideClient decides on a request for a kubelet's client certificate. The kubelet, and its machine, which joined, get the certificate of
// their own node name. ours is false for requests that others decide on: an administrator approves his own requests.
func decideClient(csr *certificates.CertificateSigningRequest) (v verdict, ours bool) {
	node := nodeOf(csr)
	if node == "" {
		return verdict{}, false
	}
	req, err := pki.ParseRequest(csr.Spec.Request)
	if err != nil {
		return deny("reading the request: %v", err), true
	}
	switch want := nodeguard.KubeletUser + node; {
	case req.Subject.CommonName != want:
		return deny("it is for %q, and %s may have one for %s only", req.Subject.CommonName, csr.Spec.Username, want), true
	case !slices.Equal(req.Subject.Organization, []string{nodeGroup}):
		return deny("the organization must be %s", nodeGroup), true
	case len(req.DNSNames)+len(req.IPAddresses)+len(req.EmailAddresses)+len(req.URIs) > 0:
		return deny("a client certificate has no alternative names"), true
	case !usagesFit(csr.Spec.Usages, certificates.UsageClientAuth):
		return deny("the usages must be digital signature, client auth and at most key encipherment, not %s", fmt.Sprint(csr.Spec.Usages)), true
	}
	return verdict{approve: true, key: pki.RequestFingerprint(req)}, true
}

// nodeOf returns the node of the requestor, "" if it is neither a kubelet nor a machine that joined.
func nodeOf(csr *certificates.CertificateSigningRequest) string {
	for _, user := range [][2]string{{pki.NodeUser, pki.NodeGroup}, {nodeguard.KubeletUser, nodeGroup}} {
		if node, ok := strings.CutPrefix(csr.Spec.Username, user[0]); ok && slices.Contains(csr.Spec.Groups, user[1]) {
			return node
		}
	}
	return ""
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
		_, noAddress := netip.ParseAddr(lower)
		switch {
		case noAddress == nil:
			return deny("%s is an address, not a name", name)
		case p.reservedName(node, lower) || p.publishedElsewhere(node, nodes, lower):
			return deny("the name %s belongs to the API, to Services or to the loopback", name)
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

// reservedName reports whether a name belongs to the API, to a Service or to the loopback. A server's own node may have the names of --tls-san.
func (p policy) reservedName(node core.Node, name string) bool {
	first, rest, dotted := strings.Cut(name, ".")
	switch {
	case first == "kubernetes" && (!dotted || rest == "default" || strings.HasPrefix(rest, "default.")):
		return true
	case strings.HasSuffix(name, ".svc") || strings.HasSuffix(name, "."+p.domain):
		return true
	}
	local := name == "localhost" || strings.HasSuffix(name, ".localhost") || strings.HasPrefix(name, "localhost.")
	return !kube.IsServer(&node) && (local || slices.Contains(p.names, name))
}

func (p policy) reservedAddr(node core.Node, addr netip.Addr) bool {
	for _, prefix := range p.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return !kube.IsServer(&node) && (addr.IsLoopback() || addr.IsUnspecified() || slices.Contains(p.addrs, addr))
}

// publishedElsewhere reports whether the API of a server on another node has the name or address.
func (p policy) publishedElsewhere(node core.Node, nodes []core.Node, nameOrAddr string) bool {
	return !kube.IsServer(&node) && slices.ContainsFunc(nodes, func(other core.Node) bool {
		if !kube.IsServer(&other) {
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

// claimedByOther returns another Node that has the name or address, or "". Agents behind one NAT may share its address as their external one.
func (p policy) claimedByOther(node core.Node, nodes []core.Node, nameOrAddr string) string {
	for _, other := range nodes {
		if other.Name == node.Name {
			continue
		}
		if ip, err := netip.ParseAddr(nameOrAddr); err == nil && kube.HasForSure(&node, ip) && kube.OnlyClaims(&other, ip) {
			continue
		}
		kind, has := addressType(other, nameOrAddr)
		if kind == core.NodeExternalIP && !kube.IsServer(&other) && !kube.IsServer(&node) {
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
