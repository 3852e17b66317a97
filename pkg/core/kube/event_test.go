package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
)

// TestEventOfLongName: the name of an Event is one that the API server takes, however long that of its object is.
func TestEventOfLongName(t *testing.T) {
	client := fake.NewClientset()
	about := corev1.ObjectReference{Namespace: "shop", Name: strings.Repeat("a.", 126) + "a"}
	if err := SendEvent(t.Context(), client, corev1.EventSource{}, about, corev1.EventTypeWarning, "Reason", "message"); err != nil {
		t.Fatal(err)
	}
	events, err := client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 {
		t.Fatalf("%v %v", events, err)
	}
	if wrong := validation.IsDNS1123Subdomain(events.Items[0].Name); len(wrong) > 0 || events.Items[0].InvolvedObject.Name != about.Name {
		t.Errorf("%s: %s", events.Items[0].Name, wrong)
	}
}
