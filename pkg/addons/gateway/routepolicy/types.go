// Package routepolicy reads RoutePolicies: what routes ask of the gateway that the Gateway API has no field for. It is pure. The schema of the kind
// is in manifests/route-policy-crds.yaml.
//
// A policy that cannot be enforced closes the routes that it is for: served without it they would let in whom it keeps out.
package routepolicy

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is the name of the kind.
const Kind = "RoutePolicy"

// API returns what the API server has RoutePolicies under.
func API() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "coracle.dev", Version: "v1", Resource: "routepolicies"}
}

// RoutePolicy is one with the fields that the gateway reads.
type RoutePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`

	// Unreadable is why the rest of the policy could not be read, "" if it could.
	Unreadable string `json:"-"`
}

// Read reads a policy. One that cannot be read has its name and its targets, so that it closes them.
func Read(o *unstructured.Unstructured) *RoutePolicy {
	p := &RoutePolicy{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, p)
	if err == nil {
		p.ManagedFields = nil
		return p
	}
	p = &RoutePolicy{Unreadable: err.Error(), ObjectMeta: metav1.ObjectMeta{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(),
		CreationTimestamp: o.GetCreationTimestamp(),
	}}
	refs, _, _ := unstructured.NestedSlice(o.Object, "spec", "targetRefs")
	for _, ref := range refs {
		fields, _ := ref.(map[string]any)
		text := func(name string) string { text, _ := fields[name].(string); return text }
		p.Spec.TargetRefs = append(p.Spec.TargetRefs, TargetRef{Group: text("group"), Kind: text("kind"), Name: text("name")})
	}
	return p
}

// Spec is what a RoutePolicy asks for.
type Spec struct {
	TargetRefs      []TargetRef        `json:"targetRefs"`
	Clients         *Clients           `json:"clients,omitempty"`
	BasicAuth       *BasicAuth         `json:"basicAuth,omitempty"`
	RateLimit       *RateLimit         `json:"rateLimit,omitempty"`
	MaxBodySize     *resource.Quantity `json:"maxBodySize,omitempty"`
	StallTimeout    string             `json:"stallTimeout,omitempty"`
	SessionAffinity *SessionAffinity   `json:"sessionAffinity,omitempty"`
}

// TargetRef is a route in the policy's namespace.
type TargetRef struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// Clients are networks and addresses.
type Clients struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

// BasicAuth names a Secret with passwords.
type BasicAuth struct {
	Realm     string `json:"realm,omitempty"`
	SecretRef struct {
		Name string `json:"name"`
	} `json:"secretRef"`
}

// RateLimit bounds what one client does.
type RateLimit struct {
	Rates      []Rate   `json:"rates,omitempty"`
	Concurrent int      `json:"concurrent,omitempty"`
	Except     []string `json:"except,omitempty"`
}

// Rate is a number of requests in a Second, Minute or Hour.
type Rate struct {
	Requests int    `json:"requests"`
	Per      string `json:"per"`
	Burst    int    `json:"burst,omitempty"`
}

// SessionAffinity has the cookie by which a client is known again.
type SessionAffinity struct {
	Cookie struct {
		Name     string `json:"name"`
		Path     string `json:"path,omitempty"`
		MaxAge   string `json:"maxAge,omitempty"`
		SameSite string `json:"sameSite,omitempty"`
		Secure   bool   `json:"secure,omitempty"`
	} `json:"cookie"`
}

// Status says what became of a policy at each of its targets.
type Status struct {
	Ancestors []Ancestor `json:"ancestors,omitempty"`
}

// Ancestor is a target: PolicyAncestorStatus of the Gateway API.
type Ancestor struct {
	AncestorRef    AncestorRef        `json:"ancestorRef"`
	ControllerName string             `json:"controllerName"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// AncestorRef is a target with its namespace.
type AncestorRef struct {
	TargetRef `json:",inline"`
	Namespace string `json:"namespace"`
}
