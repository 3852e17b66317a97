package rekey

import (
	"bytes"
	"encoding/base64"
	"net/netip"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/etcd/rekeyrequest"
)

const (
	former = "-----BEGIN CERTIFICATE-----\nformer\n-----END CERTIFICATE-----\n"
	now    = "-----BEGIN CERTIFICATE-----\nthe new one\n-----END CERTIFICATE-----\n"
)

func testEdit() *edit {
	return newEdit(rekeyrequest.Request{CA: []byte(former), Addresses: map[netip.Addr]netip.Addr{
		netip.MustParseAddr("10.222.0.11"): netip.MustParseAddr("10.222.1.11"),
	}, Machines: map[string]string{"x": "key"}}, []byte(now))
}

// edited puts an object through an edit; nil says that it stays as it is.
func edited(t *testing.T, key string, kind schema.GroupVersionKind, object runtime.Object) runtime.Object {
	t.Helper()
	e := testEdit()
	object.GetObjectKind().SetGroupVersionKind(kind)
	var value bytes.Buffer
	if err := e.codec.Encode(object, &value); err != nil {
		t.Fatal(err)
	}
	got, err := e.object(Prefix+key, value.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got == nil {
		return nil
	}
	out, _, err := e.codec.Decode(got, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func core(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }

func TestTyped(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "x", UID: "old"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "old", Annotations: map[string]string{"ip": "10.222.0.11", "other": "10.222.0.1"}}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "x"}, {Type: corev1.NodeInternalIP, Address: "10.222.0.11"}}
	got := edited(t, "minions/x", core("Node"), node).(*corev1.Node)
	if got.Status.Addresses[1].Address != "10.222.1.11" || got.Status.Addresses[0].Address != "x" || got.Annotations["ip"] != "10.222.1.11" || got.Annotations["other"] != "10.222.0.1" || got.UID != "old" {
		t.Errorf("%+v", got)
	}
	if ns := edited(t, "namespaces/kube-system", core("Namespace"), &corev1.Namespace{ObjectMeta: meta}).(*corev1.Namespace); ns.UID == "old" || ns.UID == "" {
		t.Errorf("the cluster's identity is %q", ns.UID)
	}
	config := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"ca.crt": former, "both": former + "more\n"}}
	if got := edited(t, "configmaps/default/kube-root-ca.crt", core("ConfigMap"), config).(*corev1.ConfigMap); got.Data["ca.crt"] != now || got.Data["both"] != now+"more\n" {
		t.Errorf("%q", got.Data)
	}
	token := &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte("secret"), "ca.crt": []byte(former)}}
	if got := edited(t, "secrets/default/x", core("Secret"), token).(*corev1.Secret); string(got.Data["ca.crt"]) != now || got.Data["token"] != nil {
		t.Errorf("%q", got.Data)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "coracle-node-x", UID: "old", Labels: map[string]string{endpoint.RestrictedLabel: "true"}, Finalizers: []string{endpoint.RestrictedLabel}}}
	holder := "former"
	lease.Spec.HolderIdentity = &holder
	kind := coordinationv1.SchemeGroupVersion.WithKind("Lease")
	if got := edited(t, "leases/kube-system/coracle-node-x", kind, lease).(*coordinationv1.Lease); *got.Spec.HolderIdentity != "key" || len(got.Labels)+len(got.Finalizers) > 0 {
		t.Errorf("%+v", got.Spec)
	}
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionv1.ValidatingWebhook{{Name: "a"}, {Name: "b"}}}
	hook.Webhooks[1].ClientConfig.CABundle = []byte(former)
	kind = admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
	if got := edited(t, "validatingwebhookconfigurations/x", kind, hook).(*admissionv1.ValidatingWebhookConfiguration); string(got.Webhooks[1].ClientConfig.CABundle) != now {
		t.Errorf("%+v", got.Webhooks)
	}
	service := &apiregistrationv1.APIService{ObjectMeta: meta, Spec: apiregistrationv1.APIServiceSpec{CABundle: []byte(former)}}
	if got := edited(t, "apiregistration.k8s.io/apiservices/x", apiregistrationv1.SchemeGroupVersion.WithKind("APIService"), service).(*apiregistrationv1.APIService); string(got.Spec.CABundle) != now {
		t.Errorf("%q", got.Spec.CABundle)
	}
}

// TestStopped has nobody sent to pods that do not run yet.
func TestStopped(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true}}
	got := edited(t, "pods/default/x", core("Pod"), pod.DeepCopy()).(*corev1.Pod)
	if c := got.Status.Conditions; c[0].Status != corev1.ConditionTrue || c[1].Status != corev1.ConditionFalse || got.Status.ContainerStatuses[0].Ready {
		t.Errorf("%+v", got.Status)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if got := edited(t, "pods/default/x", core("Pod"), pod); got != nil {
		t.Errorf("%+v", got)
	}
	yes := true
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.5"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}}}
	kind := discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")
	if got := edited(t, "endpointslices/default/x", kind, slice.DeepCopy()).(*discoveryv1.EndpointSlice); *got.Endpoints[0].Conditions.Ready {
		t.Errorf("%+v", got.Endpoints)
	}
	slice.Labels = nil
	if got := edited(t, "endpointslices/default/x", kind, slice); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestNothingElseChanges(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "x", UID: "old"}
	if got := edited(t, "namespaces/default", core("Namespace"), &corev1.Namespace{ObjectMeta: meta}); got != nil {
		t.Errorf("%+v", got)
	}
	if got := edited(t, "secrets/default/x", core("Secret"), &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"token": []byte("a user's")}}); got != nil {
		t.Errorf("%+v", got)
	}
	if got := edited(t, "minions/x", core("Node"), &corev1.Node{ObjectMeta: meta}); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestCustom(t *testing.T) {
	quoted := strings.ReplaceAll(former, "\n", `\n`)
	encoded := base64.StdEncoding.EncodeToString([]byte(former))
	got, err := testEdit().object(Prefix+"example.org/boats/default/x", []byte(`{"spec":{"ca":"`+quoted+`","caBundle":"`+encoded+`"}}`))
	want := `{"spec":{"ca":"` + strings.ReplaceAll(now, "\n", `\n`) + `","caBundle":"` + base64.StdEncoding.EncodeToString([]byte(now)) + `"}}`
	if err != nil || string(got) != want {
		t.Errorf("%v: %s", err, got)
	}
	if got, err := testEdit().object(Prefix+"example.org/boats/default/x", []byte(`{"spec":{}}`)); err != nil || got != nil {
		t.Errorf("%v: %s", err, got)
	}
}

func TestEncryptedIsAnError(t *testing.T) {
	if _, err := testEdit().object(Prefix+"secrets/default/x", []byte("k8s:enc:aescbc:v1:key1:...")); err == nil {
		t.Error("an object that cannot be read is passed over")
	}
}
