package translate

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// CertificateOf reads a Secret of type kubernetes.io/tls.
func CertificateOf(s *corev1.Secret) Certificate {
	chain, key, leaf, err := gateway.KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return Certificate{Problem: err.Error(), Issuer: s.Annotations[AnnotationIssuer]}
	}
	return Certificate{Chain: chain, Key: key, Issuer: s.Annotations[AnnotationIssuer], Leaf: leaf, Serves: func(host string) error { return serves(leaf, host) }}
}

// serves returns why clients will not accept a certificate for a host.
func serves(leaf *x509.Certificate, host string) error {
	if strings.HasPrefix(host, "*.") && slices.ContainsFunc(leaf.DNSNames, func(n string) bool { return strings.EqualFold(n, host) }) {
		return nil
	}
	if strings.HasPrefix(host, "*.") {
		host = "any" + host[1:]
	}
	return leaf.VerifyHostname(host)
}

// tls gives the hosts of an Ingress its certificates.
func (t *translation) tls(i *networkingv1.Ingress) {
	for _, entry := range i.Spec.TLS {
		if entry.SecretName == "" {
			continue // its hosts have the gateway's own certificate
		}
		key := types.NamespacedName{Namespace: i.Namespace, Name: entry.SecretName}
		c, found := t.certificates[key]
		byACME := t.acme(i, key, c, found, hostsOf(i, entry))
		switch {
		case !found && byACME:
			continue // people are told by Events of what becomes of it
		case !found && AsksForACME(i.Annotations):
			t.problem(i, "CertificateNotFound", "there is no Secret %s, and the servers have no --acme-email, without which they ask for no certificate by ACME", key)
			continue
		case !found:
			t.problem(i, "CertificateNotFound", "there is no Secret %s of type %s: until there is one, its hosts have a certificate that no client trusts", key, corev1.SecretTypeTLS)
			continue
		case c.Problem != "":
			t.problem(i, "CertificateInvalid", "Secret %s: %s: until it is right, its hosts have a certificate that no client trusts", key, c.Problem)
			continue
		}
		t.secure(i, key, c, hostsOf(i, entry))
	}
}

// hostsOf returns the hosts of an entry: of the whole Ingress if it lists none.
func hostsOf(i *networkingv1.Ingress, entry networkingv1.IngressTLS) (hosts []string) {
	for _, h := range entry.Hosts {
		hosts = append(hosts, strings.ToLower(h))
	}
	if len(entry.Hosts) == 0 {
		for _, rule := range i.Spec.Rules {
			if rule.Host != "" {
				hosts = append(hosts, strings.ToLower(rule.Host))
			}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// secure uses a certificate for hosts.
func (t *translation) secure(i *networkingv1.Ingress, key types.NamespacedName, c Certificate, hosts []string) {
	for _, host := range hosts {
		if other := t.claim(i, host); other != "" {
			t.problem(i, "HostTaken", "%s belongs to %s: the certificate of Secret %s is not used for it", named(host), other, key)
			continue
		}
		if other := t.secured[host]; other != nil {
			if other != i {
				t.problem(i, "HostTaken", "%s has the certificate that Ingress %s names already", named(host), other.Name)
			}
			continue
		}
		t.secured[host] = i
		if err := c.Serves(host); err != nil {
			t.problem(i, "CertificateInvalid", "Secret %s: clients refuse its certificate: %v", key, err)
		}
		source := fmt.Sprintf("Secret %s", key)
		t.chosen[key] = gateway.Certificate{Source: source, Chain: c.Chain, Key: c.Key}
		t.sources[host] = []string{source}
	}
}
