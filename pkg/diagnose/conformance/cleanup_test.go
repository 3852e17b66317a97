package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

func cluster(objects ...runtime.Object) (*Runner, *fake.Clientset, *bytes.Buffer) {
	api, notes := fake.NewClientset(objects...), &bytes.Buffer{}
	return &Runner{Notes: notes, Out: notes, api: api, streams: api}, api, notes
}

// TestOthersObjects: what somebody else has made under the same names is never removed, and keeps a run away.
func TestOthersObjects(t *testing.T) {
	others := metav1.ObjectMeta{Name: namespace}
	r, api, _ := cluster(&corev1.Namespace{ObjectMeta: others})
	if err := r.makeNamespace(t.Context()); err == nil || !strings.Contains(err.Error(), "has not made it") {
		t.Errorf("a run in another's namespace: %v", err)
	}
	if err := r.Cleanup(t.Context()); err == nil {
		t.Error("the other's namespace was cleaned up")
	}
	if _, err := api.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}

	r, api, _ = cluster(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: binding}})
	if err := r.makeNamespace(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.makePod(t.Context()); err == nil {
		t.Error("the other's ClusterRoleBinding was taken")
	}
	if err := r.remove(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := api.RbacV1().ClusterRoleBindings().Get(t.Context(), binding, metav1.GetOptions{}); err != nil {
		t.Errorf("the other's ClusterRoleBinding: %v", err)
	}
	if _, err := api.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the run's namespace: %v", err)
	}
}

// TestOccupied says of a namespace of a former run what can be done about it.
func TestOccupied(t *testing.T) {
	now := metav1.Now()
	leaving := meta(namespace)
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"kubernetes"}
	ended := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: namespace}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: tests, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}}}
	ns := &corev1.Namespace{ObjectMeta: meta(namespace)}
	for want, objects := range map[string][]runtime.Object{
		"is under way since": {ns, &corev1.Pod{ObjectMeta: ended.ObjectMeta}},
		"was not removed":    {ns, ended},
		"is being removed":   {&corev1.Namespace{ObjectMeta: leaving}},
	} {
		r, _, _ := cluster(objects...)
		if err := r.makeNamespace(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestRemove: the pod goes before its rights, in spite of an API that fails for a moment.
func TestRemove(t *testing.T) {
	r, api, notes := cluster(&corev1.Namespace{ObjectMeta: meta(namespace)}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta(binding)},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pods-1", Labels: map[string]string{"e2e-run": "x"}}})
	pod := r.pod()
	pod.Namespace = namespace
	if err := api.Tracker().Add(pod); err != nil {
		t.Fatal(err)
	}
	var removed []string
	failed := false
	api.PrependReactor("delete", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if !failed {
			failed = true
			return true, nil, errors.New("busy")
		}
		removed = append(removed, a.GetResource().Resource)
		return false, nil, nil
	})
	if err := r.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	if got := strings.Join(removed, " "); got != "pods clusterrolebindings namespaces" {
		t.Errorf("removed %s", got)
	}
	if !strings.Contains(notes.String(), "tests have left these namespaces: pods-1.") {
		t.Errorf("noted %s", notes)
	}
	if err := r.Cleanup(t.Context()); err != nil || !strings.Contains(notes.String(), "nothing to remove") {
		t.Errorf("again: %v, noted %s", err, notes)
	}
}

// TestInterruptedCreation: an interrupt does not leave open whether the namespace was made.
func TestInterruptedCreation(t *testing.T) {
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}, ObjectMeta: meta(namespace)})
	}))
	defer server.Close()
	r, err := Connect(&rest.Config{Host: server.URL}, Options{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.makeNamespace(ctx); err != nil || !asked {
		t.Errorf("%v, asked: %v", err, asked)
	}
}
