package gatewayapi

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// claims tells the orders who has which host: the namespace of a listener for it, whether or not it serves.
func (t *translation) claims() {
	for _, g := range t.gateways {
		for _, l := range g.listeners {
			t.claim(l.host, l.owner.GetNamespace(), l.owner.GetCreationTimestamp().Time)
		}
	}
}

// claim tells the orders who has a host, or all names below a wildcard.
func (t *translation) claim(host, namespace string, since time.Time, also ...string) {
	if t.in.Orders != nil && host != "" {
		t.in.Orders.Claim(strings.TrimPrefix(host, "*"), namespace, since, also...)
	}
}

// acme asks for the certificate of a listener, and reports whether it comes by ACME: for the listener's host, into the Secret that it names first, which has to be
// in its own namespace. The fault is why it is not asked for.
func (t *translation) acme(l *listener) (comes bool, refused *fault) {
	if !translate.AsksForACME(l.owner.GetAnnotations()) || l.protocol != v1.HTTPSProtocolType || l.tls == nil || len(l.tls.CertificateRefs) == 0 || l.gateway.pending {
		return false, nil
	}
	ref, namespace := l.tls.CertificateRefs[0], l.owner.GetNamespace()
	if or(ref.Group, "") != "" || or(ref.Kind, kindSecret) != kindSecret || string(or(ref.Namespace, v1.Namespace(namespace))) != namespace {
		return false, nil
	}
	key := types.NamespacedName{Namespace: namespace, Name: string(ref.Name)}
	c, found := t.in.Certificates[key]
	switch {
	case found && c.Issuer == "": // others have made it
		return false, nil
	case t.in.Orders == nil && !found:
		return false, faulty(v1.ListenerReasonInvalidCertificateRef, "there is no Secret %s, and the servers have no --acme-email, without which they ask for no certificate by ACME", key)
	case t.in.Orders == nil:
		return false, nil
	case l.host == "":
		return false, faulty(v1.ListenerReasonInvalidCertificateRef, "a certificate by ACME is for a host, and the listener has no hostname")
	}
	by := corev1.ObjectReference{
		APIVersion: v1.GroupVersion.String(), Kind: l.kind, Namespace: namespace, Name: l.owner.GetName(), UID: l.owner.GetUID(), ResourceVersion: l.owner.GetResourceVersion(),
	}
	for _, why := range t.in.Orders.Add(by, l.gateway.own, key, c, []string{l.host}) {
		return false, faulty(v1.ListenerReasonInvalidCertificateRef, "%s", why)
	}
	return true, nil
}
