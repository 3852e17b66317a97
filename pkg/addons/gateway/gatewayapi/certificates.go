package gatewayapi

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// certificate returns the source of a certificate, which is then in the configuration, or why there is none.
func (t *translation) certificate(kind, namespace string, ref v1.SecretObjectReference, invalid v1.ListenerConditionReason) (source string, problem *fault) {
	if or(ref.Group, "") != "" || or(ref.Kind, kindSecret) != kindSecret {
		return "", faulty(invalid, "certificates are in Secrets, not in objects of kind %s", or(ref.Kind, kindSecret))
	}
	key := types.NamespacedName{Namespace: string(or(ref.Namespace, v1.Namespace(namespace))), Name: string(ref.Name)}
	if !t.permitted(kind, namespace, "", kindSecret, key.Namespace, key.Name) {
		return "", faulty(v1.ListenerReasonRefNotPermitted, "Secret %s is in another namespace, which has no ReferenceGrant for it", key)
	}
	c, found := t.in.Certificates[key]
	switch {
	case !found:
		return "", faulty(invalid, "there is no Secret %s of type kubernetes.io/tls", key)
	case c.Problem != "":
		return "", faulty(invalid, "Secret %s: %s", key, c.Problem)
	}
	source = fmt.Sprintf("Secret %s", key)
	t.chosen[source] = gateway.Certificate{Source: source, Chain: c.Chain, Key: c.Key}
	return source, nil
}

// usedCertificates returns the sources of those that serve: the gateway's process gets no private key of a listener that does not.
func (t *translation) usedCertificates() []string {
	used := map[string]bool{}
	for _, l := range t.Config.Listeners {
		for _, source := range l.Certificates[""] {
			used[source] = true
		}
	}
	for _, g := range t.gateways {
		if g.clientCertificate != "" && slices.ContainsFunc(g.listeners, func(l *listener) bool { return t.inUse[l.configName()] }) {
			used[g.clientCertificate] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// secure gives a listener that terminates TLS its certificates, and the authorities of its clients' certificates.
func (t *translation) secure(l *listener, out *gateway.Listener) {
	var sources []string
	byACME, refused := t.acme(l)
	if l.tls != nil {
		for i, ref := range l.tls.CertificateRefs {
			source, problem := t.certificate(l.kind, l.owner.GetNamespace(), ref, v1.ListenerReasonInvalidCertificateRef)
			if problem != nil {
				if i == 0 && byACME { // Events tell what becomes of it
					problem = faulty(v1.ListenerReasonPending, "%s: it comes by ACME, and until then clients get a certificate that they do not trust", problem.message)
				}
				l.unresolved = problem
				continue
			}
			sources = append(sources, source)
		}
	}
	if refused != nil {
		l.unresolved = refused
	}
	if len(sources) == 0 && !byACME {
		l.broken = l.unresolved
		if l.broken == nil {
			l.broken = faulty(v1.ListenerReasonInvalid, "the listener has no certificate (tls.certificateRefs)")
		}
	}
	out.Certificates = map[string][]string{"": sources}
	t.clientAuthorities(l, out)
}

// clientAuthorities are those of the certificates that clients of a listener must have.
func (t *translation) clientAuthorities(l *listener, out *gateway.Listener) {
	g := l.gateway.object
	if g.Spec.TLS == nil || g.Spec.TLS.Frontend == nil {
		return
	}
	validation := g.Spec.TLS.Frontend.Default.Validation
	for _, p := range g.Spec.TLS.Frontend.PerPort {
		if p.Port == l.port {
			validation = p.TLS.Validation
		}
	}
	if validation == nil {
		return
	}
	var authorities strings.Builder
	for _, ref := range validation.CACertificateRefs {
		namespace := string(or(ref.Namespace, v1.Namespace(g.Namespace)))
		text, problem := t.authorities(kindGateway, g.Namespace, string(ref.Group), string(ref.Kind), types.NamespacedName{Namespace: namespace, Name: string(ref.Name)})
		if problem != nil {
			l.unresolved = problem
			continue
		}
		authorities.WriteString(text)
	}
	if authorities.Len() == 0 {
		message := "there is no certificate of an authority for its clients"
		if l.unresolved != nil {
			message = l.unresolved.message
		}
		l.rejected = faulty(v1.ListenerReasonNoValidCACertificate, "%s", message)
		return
	}
	out.ClientAuthorities = authorities.String()
	out.AnyClient = validation.Mode == v1.AllowInsecureFallback
	l.gateway.insecure = l.gateway.insecure || out.AnyClient
}

// authorities returns the certificates of authorities in a ConfigMap. The reasons of faults are those of listeners.
func (t *translation) authorities(kind, namespace, toGroup, toKind string, key types.NamespacedName) (string, *fault) {
	if toGroup != "" || toKind != kindConfigMap {
		return "", faulty(v1.ListenerReasonInvalidCACertificateKind, "certificates of authorities are in ConfigMaps, not in objects of kind %s", toKind)
	}
	if !t.permitted(kind, namespace, "", kindConfigMap, key.Namespace, key.Name) {
		return "", faulty(v1.ListenerReasonRefNotPermitted, "ConfigMap %s is in another namespace, which has no ReferenceGrant for it", key)
	}
	text, found := t.in.Authorities[key]
	if !found {
		return "", faulty(v1.ListenerReasonInvalidCACertificateRef, "there is no ConfigMap %s with the key ca.crt", key)
	}
	rest := []byte(text)
	var out strings.Builder
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "", faulty(v1.ListenerReasonInvalidCACertificateRef, "ConfigMap %s: %v", key, err)
		}
		out.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
	}
	if out.Len() == 0 {
		return "", faulty(v1.ListenerReasonInvalidCACertificateRef, "ConfigMap %s has no certificate in PEM as its ca.crt", key)
	}
	return out.String(), nil
}
