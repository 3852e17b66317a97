package config

import (
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"regexp"
	"strings"
)

// The syntax of names in Kubernetes (RFC 1123, label keys and values).
var (
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)            // and at most 63 characters
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`) // the same; also of the name in a key
	taintParts = regexp.MustCompile(`^([^=:]+)(?:=([^=:]*))?:([^=:]+)$`)
)

// subdomain reports whether s is a DNS subdomain name of Kubernetes.
func subdomain(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if len(label) > 63 || !dnsLabel.MatchString(label) {
			return false
		}
	}
	return true
}

// NodeNameForm describes a node's name, which also has 63 characters at most.
const NodeNameForm = "lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"

// IsNodeName reports whether s can be a node's name. It is also the value of a label, which is shorter than a DNS name.
func IsNodeName(s string) bool { return subdomain(s) && len(s) <= 63 }

func (d *decoder) nodeName(v *value) string {
	if it := v.one(); it.text != "" {
		if !IsNodeName(it.text) {
			d.add("%s: %q is not a node name; it must consist of %s, 63 at most", v.label(), it.text, NodeNameForm)
		}
		return it.text
	}
	host, err := d.host.hostname()
	if err != nil {
		d.add("%s: reading the host name: %w", v.label(), err)
		return ""
	}
	name := strings.ToLower(strings.TrimSpace(host))
	if !IsNodeName(name) {
		d.add("%s: this host's name %q cannot be a node name, which must consist of %s, 63 at most; give one with --node-name",
			v.label(), host, NodeNameForm)
	}
	if former := d.formerName(); former != "" && (name == "localhost" || strings.HasPrefix(name, "localhost.")) {
		name = former
	}
	v.derive(name)
	return name
}

// formerName returns the node name in the certificate of the last start, "" if there is none. A host is called localhost until DHCP or a service has
// named it; a node that followed would lose its Node, with the volumes and pods on it.
func (d *decoder) formerName() string {
	data, _ := d.host.readFile(d.nodeCert)
	block, _ := pem.Decode(data)
	if block == nil {
		return ""
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	name, found := strings.CutPrefix(cert.Subject.CommonName, "system:coracle:node:")
	if !found || !IsNodeName(name) {
		return ""
	}
	return name
}

func (d *decoder) domain(v *value) string {
	it := v.one()
	if !subdomain(it.text) {
		d.add("%s: %q is not a domain; it must consist of %s", v.label(), it.text, NodeNameForm)
	}
	return it.text
}

// qualified reports whether s is a label's value, or the name in its key.
func qualified(s string) bool { return len(s) <= 63 && labelValue.MatchString(s) }

// labelKey reports whether s is a label or taint key: an optional DNS prefix and a name.
func labelKey(s string) bool {
	prefix, name, ok := strings.Cut(s, "/")
	if !ok {
		return qualified(s)
	}
	return subdomain(prefix) && qualified(name)
}

// labels returns the labels that a node of that name gets in addition to the kubelet's.
func (d *decoder) labels(v *value, node string) map[string]string {
	out := map[string]string{}
	for _, it := range v.items {
		key, val, ok := strings.Cut(it.text, "=")
		switch {
		case !ok || !labelKey(key) || val != "" && !qualified(val):
			d.add("%s: %q is not a label such as example.com/zone=a", it.label(v.setting), it.text)
		case key == "kubernetes.io/hostname":
			if val != node { // the kubelet sets it
				d.add("%s: label %s can only be the node's name, %q: volumes on its disks do not work with %q; remove the label", it.label(v.setting), key, node, val)
			}
		case reservedLabel(key):
			d.add("%s: Kubernetes does not let a node label itself %s; use kubectl label", it.label(v.setting), key)
		default:
			out[key] = val
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// reservedLabel reports whether the kubelet refuses to set a label on its own node.
func reservedLabel(key string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	if !ok || !(within(prefix, "kubernetes.io") || within(prefix, "k8s.io")) {
		return false
	}
	if within(prefix, "kubelet.kubernetes.io") || within(prefix, "node.kubernetes.io") {
		return false
	}
	switch key {
	case "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		"beta.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.kubernetes.io/region",
		"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region":
		return false
	}
	return true
}

func within(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

func (d *decoder) taints(v *value) []string {
	var out []string
	for _, it := range v.items {
		m := taintParts.FindStringSubmatch(it.text)
		if m == nil || !labelKey(m[1]) || m[2] != "" && !qualified(m[2]) {
			d.add("%s: %q is not a taint such as example.com/gpu=yes:NoSchedule", it.label(v.setting), it.text)
			continue
		}
		switch m[3] {
		case "NoSchedule", "PreferNoSchedule", "NoExecute":
			out = append(out, m[1]+"="+m[2]+":"+m[3])
		default:
			d.add("%s: %q has the effect %s; there are NoSchedule, PreferNoSchedule and NoExecute", it.label(v.setting), it.text, m[3])
		}
	}
	return out
}

// sans returns host names, which may begin with a wildcard label, and addresses.
func (d *decoder) sans(v *value) []string {
	var out []string
	for _, it := range v.items {
		name := strings.ToLower(it.text)
		if addr, err := netip.ParseAddr(name); err == nil {
			out = append(out, addr.String())
			continue
		}
		if !subdomain(strings.TrimPrefix(name, "*.")) {
			d.add("%s: %q is neither a host name nor an IP address", it.label(v.setting), it.text)
		}
		out = append(out, name)
	}
	return out
}
