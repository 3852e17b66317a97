package localstorage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/localpath"
)

// TestRefusedVolume: a volume that the API takes no longer is given up once nobody waits for it, with its folder if that
// is empty.
func TestRefusedVolume(t *testing.T) {
	type change = func(*corev1.PersistentVolumeClaim)
	for name, c := range map[string]struct {
		now     change // nil: the claim is gone
		file    bool
		dropped bool
	}{
		"gone":            {nil, false, true},
		"gone, with data": {nil, true, true},
		"gone before":     {nil, false, true}, // the folder too
		"another":         {func(c *corev1.PersistentVolumeClaim) { c.UID = "2" }, false, true},
		"given back":      {func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, localpath.SelectedNode) }, false, true},
		"elsewhere":       {func(c *corev1.PersistentVolumeClaim) { c.Annotations[localpath.SelectedNode] = "edge-2" }, false, true},
		"waits":           {func(*corev1.PersistentVolumeClaim) {}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			objects := []runtime.Object{testConfig(base), testClass()}
			if c.now != nil {
				objects = append(objects, testClaim(c.now))
			}
			client := fake.NewClientset(objects...)
			client.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("persistentvolumes"), testPV, errors.New("the claim does not wait"))
			})
			p := testProvisioner(client)
			pv, err := p.provision(t.Context(), testOptions(testClaim(), testClass()))
			if err != nil {
				t.Fatal(err)
			}
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: testUID}
			if c.file {
				if err := os.WriteFile(filepath.Join(pv.Spec.Local.Path, "file"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if name == "gone before" {
				if err := os.Remove(pv.Spec.Local.Path); err != nil {
					t.Fatal(err)
				}
			}
			_, err = lenient{client, p.drop}.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
			if (err == nil) != c.dropped || exists(pv) != (c.file || !c.dropped) {
				t.Errorf("got %v, the folder exists: %v", err, exists(pv))
			}
		})
	}
}
