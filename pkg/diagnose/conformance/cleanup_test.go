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
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// cluster has an API that gives what is made a UID, as a real one does, and objects that were there before.
func cluster(objects ...runtime.Object) (*Runner, *fake.Clientset, *bytes.Buffer) {
	for _, object := range objects {
		if o, err := apimeta.Accessor(object); err == nil {
			o.SetUID(types.UID("former " + o.GetName()))
		}
	}
	api, notes := fake.NewClientset(objects...), &bytes.Buffer{}
	api.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		made := a.(clienttesting.CreateAction).GetObject()
		if o, err := apimeta.Accessor(made); err == nil {
			o.SetUID(types.UID("of " + o.GetName()))
		}
		err := api.Tracker().Create(a.GetResource(), made, a.GetNamespace())
		return true, made, err
	})
	return &Runner{Notes: notes, Out: notes, api: api, streams: api}, api, notes
}

// TestOthersObjects: what somebody else has made under the same names is never removed, and keeps a run away.
func TestOthersObjects(t *testing.T) { synctest.Test(t, testOthersObjects) }

func testOthersObjects(t *testing.T) {
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
func TestRemove(t *testing.T) { synctest.Test(t, testRemove) }

func testRemove(t *testing.T) {
	r, api, notes := cluster(&corev1.Namespace{ObjectMeta: meta(namespace)}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta(binding)},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "pods-1", Labels: map[string]string{"e2e-run": "x"}}})
	pod := r.pod()
	pod.Namespace, pod.UID = namespace, "former pod"
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

// run makes what a run makes.
func run(t *testing.T, objects ...runtime.Object) (*Runner, *fake.Clientset) {
	t.Helper()
	r, api, _ := cluster(objects...)
	if err := r.makeNamespace(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.makePod(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r, api
}

// has reports whether the cluster has the binding and the namespace.
func has(t *testing.T, api *fake.Clientset) (rights, ns bool) {
	_, err := api.RbacV1().ClusterRoleBindings().Get(t.Context(), binding, metav1.GetOptions{})
	_, failed := api.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	return err == nil, failed == nil
}

// TestDeadNode: a node that does not end the pod does not keep the rights, neither after a run nor from a clean-up.
func TestDeadNode(t *testing.T) {
	for name, remove := range map[string]func(*Runner, context.Context) error{"run": (*Runner).remove, "cleanup": (*Runner).Cleanup} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, api := run(t)
				api.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
				err := remove(r, t.Context())
				if err == nil || !strings.Contains(err.Error(), "pod "+podName+" is still there") || strings.Count(err.Error(), "is still there") != 1 {
					t.Errorf("the pod, and nothing else, is still there: %v", err)
				}
				if rights, ns := has(t, api); rights || ns {
					t.Errorf("left: rights %v, namespace %v", rights, ns)
				}
			})
		})
	}
}

// TestRightsEndWithNamespace: whoever removes the namespace by hand removes the rights, too.
func TestRightsEndWithNamespace(t *testing.T) {
	_, api := run(t)
	rights, err := api.RbacV1().ClusterRoleBindings().Get(t.Context(), binding, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: "of " + namespace}
	if len(rights.OwnerReferences) != 1 || rights.OwnerReferences[0] != want {
		t.Errorf("the rights belong to %+v", rights.OwnerReferences)
	}
}

// TestLostAnswer: rights that were made, although the API's answer was lost, are removed.
func TestLostAnswer(t *testing.T) { synctest.Test(t, testLostAnswer) }

func testLostAnswer(t *testing.T) {
	r, api, _ := cluster()
	api.PrependReactor("create", "clusterrolebindings", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_ = api.Tracker().Create(a.GetResource(), a.(clienttesting.CreateAction).GetObject(), "")
		return true, nil, errors.New("timeout")
	})
	if err := r.makeNamespace(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.makePod(t.Context()); err == nil {
		t.Fatal("the rights were given")
	}
	if err := r.remove(t.Context()); err != nil {
		t.Error(err)
	}
	if rights, ns := has(t, api); rights || ns {
		t.Errorf("left: rights %v, namespace %v", rights, ns)
	}
}

// TestCleanupBesideOthers: what is a run's goes although something else of such a name is somebody's.
func TestCleanupBesideOthers(t *testing.T) { synctest.Test(t, testCleanupBesideOthers) }

func testCleanupBesideOthers(t *testing.T) {
	r, api, _ := cluster(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta(binding)})
	if err := r.Cleanup(t.Context()); err == nil || !strings.Contains(err.Error(), "namespace "+namespace+" is there already") {
		t.Errorf("the other's namespace: %v", err)
	}
	if rights, ns := has(t, api); rights || !ns {
		t.Errorf("left: rights %v, namespace %v", rights, ns)
	}
}

// TestOtherRun: what a later run has made under the same names is neither looked at nor removed, and a removal names the object by its UID.
func TestOtherRun(t *testing.T) { synctest.Test(t, testOtherRun) }

func testOtherRun(t *testing.T) {
	r, api := run(t)
	former := *r
	if err := r.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range api.Actions() {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok && (d.DeleteOptions.Preconditions == nil || *d.DeleteOptions.Preconditions.UID != types.UID("of "+d.Name)) {
			t.Errorf("%s %s is removed with %+v", d.Resource.Resource, d.Name, d.DeleteOptions)
		}
	}
	if err := api.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), account, metav1.DeleteOptions{}); err != nil { // as the namespace's end does
		t.Fatal(err)
	}
	if err := r.makeNamespace(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.makePod(t.Context()); err != nil {
		t.Fatal(err)
	}
	former.podUID, former.bindingUID, former.namespaceUID = "1", "2", "3"
	if _, err := former.look(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody has removed the tests' pod") {
		t.Errorf("another run's pod: %v", err)
	}
	if err := former.remove(t.Context()); err != nil {
		t.Error(err)
	}
	if rights, ns := has(t, api); !rights || !ns {
		t.Errorf("left: rights %v, namespace %v", rights, ns)
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
