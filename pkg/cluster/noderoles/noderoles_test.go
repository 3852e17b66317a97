package noderoles

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

func node(name string, uid types.UID) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
}

// api has nodes, and minds preconditions, which the fake does not by itself.
func api(nodes ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(nodes...)
	client.PrependReactor("delete", "nodes", func(action ktesting.Action) (bool, runtime.Object, error) {
		a := action.(ktesting.DeleteActionImpl)
		obj, err := client.Tracker().Get(action.GetResource(), "", a.Name)
		if err != nil {
			return true, nil, err
		}
		if p := a.DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != obj.(*corev1.Node).UID {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), a.Name, nil)
		}
		return false, nil, nil
	})
	return client
}

func TestRename(t *testing.T) {
	log := logrus.New()
	log.SetOutput(t.Output())
	memory := &Memory{File: filepath.Join(t.TempDir(), "own.json")}
	client := api(node("solo", "1"), node("other", "2"))
	names := func() (names []string) {
		t.Helper()
		list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list.Items {
			names = append(names, n.Name)
		}
		return names
	}
	start := func(name string, want ...string) {
		t.Helper()
		if err := (Former{Node: name, Memory: memory}).forget(t.Context(), client, log); err != nil {
			t.Fatal(err)
		}
		if got := names(); !reflect.DeepEqual(got, want) {
			t.Errorf("as %s the nodes are %v, want %v", name, got, want)
		}
	}
	start("solo", "other", "solo")
	if err := (Roles{Memory: memory}).ensure(t.Context(), client, node("solo", "1")); err != nil {
		t.Fatal(err)
	}
	start("solo", "other", "solo")
	start("renamed", "other")
	if got := memory.Former("renamed"); len(got) != 0 {
		t.Errorf("%v is still remembered", got)
	}

	// The name went to another machine meanwhile.
	if err := memory.add("other", "1"); err != nil {
		t.Fatal(err)
	}
	start("renamed", "other")
	if got := memory.Former("renamed"); len(got) != 0 {
		t.Errorf("%v is still remembered", got)
	}
}

func TestLabel(t *testing.T) {
	memory := &Memory{File: filepath.Join(t.TempDir(), "own.json")}
	client := api(node("solo", "1"))
	if err := (Roles{Memory: memory, Names: []string{"a.example.org", "192.0.2.9"}}).ensure(t.Context(), client, node("solo", "1")); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Nodes().Get(t.Context(), "solo", metav1.GetOptions{})
	if err != nil || got.Labels[kube.ControlPlaneLabel] != "true" {
		t.Errorf("labels are %v, %v", got.Labels, err)
	}
	if names := got.Annotations[kube.APINamesAnnotation]; names != "a.example.org,192.0.2.9" {
		t.Errorf("the API's names are %q", names)
	}
	if got := memory.Former("renamed"); got["solo"] != "1" {
		t.Errorf("remembered is %v", got)
	}
}

func TestAnotherMachineHasTheName(t *testing.T) {
	memory := &Memory{File: filepath.Join(t.TempDir(), "own.json")}
	client := api(node("solo", "1"))
	roles := Roles{Memory: memory, Mine: func(context.Context) error { return errors.New("it is another's") }}
	if err := roles.ensure(t.Context(), client, node("solo", "1")); err == nil {
		t.Error("another machine's Node is taken for the own one")
	}
	got, err := client.CoreV1().Nodes().Get(t.Context(), "solo", metav1.GetOptions{})
	if err != nil || got.Labels[kube.ControlPlaneLabel] != "" || memory.knows("solo", "1") {
		t.Errorf("labels are %v, remembered is %v, %v", got.Labels, memory.Former(""), err)
	}
}

func TestDamagedMemory(t *testing.T) {
	memory := &Memory{File: filepath.Join(t.TempDir(), "own.json")}
	if err := os.WriteFile(memory.File, []byte(`{"a":"1","b`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := memory.Former("b"); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if err := memory.add("b", "2"); err != nil {
		t.Fatal(err)
	}
	if got := memory.Former("c"); !reflect.DeepEqual(got, map[string]types.UID{"b": "2"}) {
		t.Errorf("got %v", got)
	}
}
