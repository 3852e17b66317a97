package admit

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/network/portguard"
)

func TestValidate(t *testing.T) {
	yes := map[string]string{portguard.Annotation: "true"}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "routers", Annotations: yes}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}), 0)
	p := New()
	if p.ValidateInitialization() == nil {
		t.Error("it needs no informers")
	}
	p.SetExternalKubeInformerFactory(factory)
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())

	pod := func(annotations map[string]string) runtime.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: annotations}}
	}
	for name, tt := range map[string]struct {
		namespace, resource, sub string
		now, was                 runtime.Object
		groups                   []string
		refused                  bool
	}{
		"without the annotation":     {namespace: "tenant", now: pod(nil)},
		"a tenant":                   {namespace: "tenant", now: pod(yes), refused: true},
		"a tenant, later":            {namespace: "tenant", now: pod(yes), was: pod(nil), refused: true},
		"a tenant, by a subresource": {namespace: "tenant", sub: "status", now: pod(yes), was: pod(nil), refused: true},
		"a tenant, by a binding":     {namespace: "tenant", resource: "bindings", now: &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: yes}}, refused: true},
		"a pod that has it":          {namespace: "tenant", now: pod(yes), was: pod(yes)},
		"another value":              {namespace: "tenant", now: pod(map[string]string{portguard.Annotation: "no"})},
		"a permitted namespace":      {namespace: "routers", now: pod(yes)},
		"an unknown namespace":       {namespace: "new", now: pod(yes), refused: true},
		"a static pod":               {namespace: "tenant", now: pod(yes), groups: []string{user.NodesGroup}},
		"another kind":               {namespace: "tenant", resource: "services", now: pod(yes)},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.resource == "" {
				tt.resource = "pods"
			}
			operation := admission.Create
			if tt.was != nil {
				operation = admission.Update
			}
			err := p.Validate(t.Context(), admission.NewAttributesRecord(tt.now, tt.was, schema.GroupVersionKind{}, tt.namespace, "p",
				schema.GroupVersionResource{Version: "v1", Resource: tt.resource}, tt.sub, operation, nil, false, &user.DefaultInfo{Name: "u", Groups: tt.groups}), nil)
			if (err != nil) != tt.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
