package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// The annotations by which an object asks for certificates by ACME.
const (
	AnnotationACME    = "coracle.dev/acme"
	annotationTLSACME = "kubernetes.io/tls-acme" // the convention of kube-lego, which cert-manager honours too
)

// AnnotationIssuer of a Secret is the URL of the ACME server that has issued its certificate for coracle. No Secret without it is ever changed.
const AnnotationIssuer = "coracle.dev/acme-server"

// AsksForACME reports whether an object with these annotations asks for certificates by ACME, of coracle and not of cert-manager.
func AsksForACME(annotations map[string]string) bool {
	if own, ok := annotations[AnnotationACME]; ok {
		return own == "true"
	}
	for name := range annotations {
		if strings.HasPrefix(name, "cert-manager.io/") {
			return false
		}
	}
	return annotations[annotationTLSACME] == "true"
}

// findPassed notes the hosts whose TLS connections backends of a namespace get as they are.
func (t *translation) findPassed() {
	t.passed = map[[2]string]bool{}
	for _, i := range t.Served {
		for _, rule := range i.Spec.Rules {
			if a := t.asked[i]; a.passthrough && !a.closed {
				t.passed[[2]string{i.Namespace, strings.ToLower(rule.Host)}] = true
			}
		}
	}
}

// claims tells the orders who has which host.
func (t *translation) claims() {
	if t.orders == nil {
		return
	}
	for _, i := range t.Served {
		for _, host := range hostsIn(i) {
			t.orders.Claim(host, i.Namespace, i.CreationTimestamp.Time)
		}
	}
}

func hostsIn(i *networkingv1.Ingress) (hosts []string) {
	for _, rule := range i.Spec.Rules {
		hosts = append(hosts, strings.ToLower(rule.Host))
	}
	for _, entry := range i.Spec.TLS {
		hosts = append(hosts, hostsOf(i, entry)...)
	}
	return hosts
}

// acme asks for the certificate of an entry of an Ingress, and reports whether it comes by ACME.
func (t *translation) acme(i *networkingv1.Ingress, key types.NamespacedName, c Certificate, found bool, hosts []string) bool {
	if t.orders == nil || !AsksForACME(i.Annotations) {
		return false
	}
	if found && c.Issuer == "" {
		t.problem(i, "CertificateNotManaged", "Secret %s was not made by coracle, which leaves it as it is: delete it to have a certificate by ACME, or the annotation", key)
		return false
	}
	var asked []string
	for _, host := range hosts {
		if t.passed[[2]string{i.Namespace, host}] {
			t.problem(i, "CertificateRefused", "host %s has ssl-passthrough: its backend has the certificate, and none is asked for it", host)
			continue
		}
		if holder := t.claim(i, host); holder != "" {
			t.problem(i, "CertificateRefused", "%s belongs to %s: no certificate is asked for it", named(host), holder)
			continue
		}
		other := t.secured[host]
		if other == nil && !found {
			t.secured[host] = i
		}
		if other == nil || other == i || other.Namespace != i.Namespace {
			asked = append(asked, host)
		}
	}
	owner := corev1.ObjectReference{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: i.Namespace, Name: i.Name, UID: i.UID, ResourceVersion: i.ResourceVersion}
	for _, why := range t.orders.Add(owner, nil, key, c, asked) {
		t.problem(i, "CertificateRefused", "%s", why)
	}
	return true
}

// ListenForChallenges adds a listener for ACME servers, which ask on port 80, if there are certificates to be had and no listener there, and no
// Service has the port.
func ListenForChallenges(o Objects, config *gateway.Config) {
	if len(o.Orders.List()) == 0 || heldBy(o, PortHTTP) != nil ||
		slices.ContainsFunc(config.Listeners, func(l gateway.Listener) bool { return l.Port == PortHTTP && len(l.Addresses) == 0 }) {
		return
	}
	config.Listeners = append(config.Listeners, gateway.Listener{Name: "acme", Port: PortHTTP, Protocol: gateway.HTTP})
}
