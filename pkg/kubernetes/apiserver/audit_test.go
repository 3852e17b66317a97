package apiserver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditpolicy "k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// TestAuditPolicy: who is recorded for what.
func TestAuditPolicy(t *testing.T) {
	p, err := auditpolicy.LoadPolicyFromBytes(auditPolicy)
	if err != nil {
		t.Fatal(err)
	}
	evaluator := auditpolicy.NewPolicyRuleEvaluator(p)
	level := func(name, verb, group, resource, namespace, path string, groups ...string) auditinternal.Level {
		resource, subresource, _ := strings.Cut(resource, "/")
		return evaluator.EvaluatePolicyRule(authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name, Groups: groups}, Verb: verb, APIGroup: group,
			Resource: resource, Subresource: subresource, Namespace: namespace, ResourceRequest: path == "", Path: path}).Level
	}
	const people, account = "system:authenticated", "system:serviceaccounts"
	for _, one := range []struct {
		name, verb, group, resource, namespace, path string
		groups                                       []string
		recorded                                     bool
	}{
		{"alice", "create", "apps", "deployments", "shop", "", []string{people}, true},
		{"alice", "get", "apps", "deployments", "shop", "", []string{people}, false},
		{"alice", "get", "", "secrets", "shop", "", []string{people}, true},
		{"alice", "get", "", "pods/exec", "shop", "", []string{people}, true},
		{"alice", "get", "", "nodes/proxy", "", "", []string{people}, true},
		{"alice", "create", "", "events", "shop", "", []string{people}, false},
		{"alice", "patch", "coordination.k8s.io", "leases", "kube-system", "", []string{people}, true},
		{"alice", "update", "coordination.k8s.io", "leases", "shop", "", []string{people}, false},
		{"alice", "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "", []string{people}, false},
		{"", "delete", "", "pods", "shop", "", nil, false},
		{"", "get", "", "", "", "/version", nil, false},
		{"system:bootstrap:abcdef", "post", "", "", "", "/coracle/v1/join/server", []string{people, "system:bootstrappers"}, true},
		{"", "post", "", "", "", "/coracle/v1/join/server", nil, false},
		{"alice", "get", "", "", "", "/healthz", []string{people}, false},
		{"system:serviceaccount:shop:web", "create", "", "configmaps", "shop", "", []string{people, account}, true},
		{"system:serviceaccount:kube-system:admin-user", "list", "", "secrets", "", "", []string{people, account}, true},
		{"system:node:n1", "create", "", "serviceaccounts/token", "shop", "", []string{people, "system:nodes"}, false},
		{"system:node:n1", "create", "certificates.k8s.io", "certificatesigningrequests", "", "", []string{people, "system:nodes"}, true},
		{"system:node:n1", "patch", "", "nodes/status", "", "", []string{people, "system:nodes"}, false},
		{"system:kube-controller-manager", "list", "", "secrets", "", "", []string{people}, false},
	} {
		if got := level(one.name, one.verb, one.group, one.resource, one.namespace, one.path, one.groups...); (got == auditinternal.LevelMetadata) != one.recorded || !one.recorded && got != auditinternal.LevelNone {
			t.Errorf("%+v: level %s", one, got)
		}
	}
	for _, role := range bootstrappolicy.ControllerRoles() {
		name := "system:serviceaccount:kube-system:" + strings.TrimPrefix(role.Name, "system:controller:")
		if got := level(name, "update", "apps", "replicasets", "shop", "", people, account); got != auditinternal.LevelNone {
			t.Errorf("what the controller %s does is recorded: add it to the policy", name)
		}
	}
}

// sink keeps events.
type sink struct{ events []*auditinternal.Event }

func (s *sink) ProcessEvents(events ...*auditinternal.Event) bool {
	s.events = append(s.events, events...)
	return true
}
func (*sink) Run(<-chan struct{}) error { return nil }
func (*sink) Shutdown()                 {}
func (*sink) String() string            { return "sink" }

// TestLongRequests: nobody can fill the audit log with a few requests, and none is left out of it.
func TestLongRequests(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	var s sink
	event := &auditinternal.Event{RequestURI: "/api/v1/namespaces/" + long, SourceIPs: []string{long, "192.0.2.1", "192.0.2.2"}, ObjectRef: &auditinternal.ObjectReference{Namespace: long, Resource: "pods"}}
	small := &auditinternal.Event{RequestURI: "/api"}
	shortEvents{&s}.ProcessEvents(event, small)
	if len(s.events) != 2 || s.events[1] != small {
		t.Fatalf("%d events", len(s.events))
	}
	got := s.events[0]
	if len(got.RequestURI)+len(got.ObjectRef.Namespace)+len(got.SourceIPs[0]) > 4*longestAuditText || got.ObjectRef.Resource != "pods" {
		t.Errorf("it has %d bytes", len(got.RequestURI))
	}
	if !sets.New(got.SourceIPs...).Has("192.0.2.2") || len(event.RequestURI) < 1<<20 {
		t.Errorf("%q", got.SourceIPs)
	}
}
