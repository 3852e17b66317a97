package gatewayapi

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// policy is a BackendTLSPolicy.
type policy struct {
	object     *v1.BackendTLSPolicy
	tls        gateway.BackendTLS
	targets    []v1.LocalPolicyTargetReferenceWithSectionName
	rejected   *fault
	conflicted *fault
	unresolved *fault
	ancestors  []*gatewayState // Gateways with routes to its Services
}

// readPolicies reads the BackendTLSPolicies. Of several for a Service, or for a port of it, the oldest is in force.
func (t *translation) readPolicies() {
	all := slices.Clone(t.in.Policies)
	slices.SortFunc(all, translate.Older)
	type target struct {
		service types.NamespacedName
		section v1.SectionName
	}
	taken := map[target]*policy{}
	for _, o := range all {
		p := &policy{object: o}
		t.allPolicies = append(t.allPolicies, p)
		t.verification(p)
		for _, ref := range o.Spec.TargetRefs {
			if ref.Group != "" || ref.Kind != kindService {
				continue
			}
			at := target{types.NamespacedName{Namespace: o.Namespace, Name: string(ref.Name)}, or(ref.SectionName, "")}
			if other := taken[at]; other != nil {
				p.conflicted = faulty(v1.PolicyReasonConflicted, "Service %s has the older BackendTLSPolicy %s already", at.service, other.object.Name)
			} else {
				taken[at] = p
				p.targets = append(p.targets, ref)
			}
			t.policies[at.service] = append(t.policies[at.service], p)
		}
	}
}

// verification reads how the certificates of backends are verified.
func (t *translation) verification(p *policy) {
	v := p.object.Spec.Validation
	p.tls.Host = string(v.Hostname)
	for _, n := range v.SubjectAltNames {
		if n.Type == v1.URISubjectAltNameType {
			p.tls.Names = append(p.tls.Names, string(n.URI))
		} else {
			p.tls.Names = append(p.tls.Names, string(n.Hostname))
		}
	}
	var authorities strings.Builder
	for _, ref := range v.CACertificateRefs {
		key := types.NamespacedName{Namespace: p.object.Namespace, Name: string(ref.Name)}
		text, problem := t.authorities("BackendTLSPolicy", p.object.Namespace, string(ref.Group), string(ref.Kind), key)
		if problem != nil {
			reason := v1.BackendTLSPolicyReasonInvalidCACertificateRef
			if problem.reason == string(v1.ListenerReasonInvalidCACertificateKind) {
				reason = v1.BackendTLSPolicyReasonInvalidKind
			}
			p.unresolved = faulty(reason, "%s", problem.message)
			continue
		}
		authorities.WriteString(text)
	}
	p.tls.Authorities = authorities.String()
	switch {
	case p.tls.Authorities != "":
	case len(v.CACertificateRefs) > 0:
		p.rejected = faulty(v1.BackendTLSPolicyReasonNoValidCACertificate, "%s", p.unresolved.message)
	case or(v.WellKnownCACertificates, "") != v1.WellKnownCACertificatesSystem:
		p.rejected = faulty(v1.PolicyReasonInvalid, "wellKnownCACertificates %q is not supported, only %q", or(v.WellKnownCACertificates, ""), v1.WellKnownCACertificatesSystem)
	}
}

// policyFor returns the policy in force for a Service's port, and notes that routes of a Gateway use it.
func (t *translation) policyFor(g *gatewayState, service *corev1.Service, port corev1.ServicePort) (found *policy) {
	var whole *policy
	for _, p := range t.policies[keyOf(service)] {
		concerned := slices.ContainsFunc(p.object.Spec.TargetRefs, func(r v1.LocalPolicyTargetReferenceWithSectionName) bool {
			return string(r.Name) == service.Name && (r.SectionName == nil || string(*r.SectionName) == port.Name)
		})
		if !concerned {
			continue
		}
		if !slices.Contains(p.ancestors, g) {
			p.ancestors = append(p.ancestors, g)
		}
		for _, r := range p.targets {
			switch {
			case string(r.Name) != service.Name:
			case r.SectionName == nil:
				whole = p
			case string(*r.SectionName) == port.Name:
				found = p
			}
		}
	}
	if found == nil {
		return whole
	}
	return found
}
