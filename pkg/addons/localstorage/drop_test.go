package localstorage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
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

// TestRefusedSharer: a volume that is given up leaves the folder to another one that has it, whose it is again. What was
// made in spite of the refusal keeps its own.
func TestRefusedSharer(t *testing.T) {
	kept := func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	for name, c := range map[string]struct {
		other string
		is    func(*corev1.PersistentVolume)
		file  bool
		owner string // of the folder in the end
	}{
		"kept":                     {"pvc-a", kept, false, "pvc-a"},
		"kept, with data":          {"pvc-a", kept, true, "pvc-a"},
		"to be removed, with data": {"pvc-a", func(*corev1.PersistentVolume) {}, true, "pvc-a"},
		"made":                     {testPV, kept, false, testPV},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			folder := localpath.Volume{Base: base, Folder: "shop/data", PV: c.other}
			if err := folder.Create(nil); err != nil {
				t.Fatal(err)
			}
			if c.file {
				if err := os.WriteFile(filepath.Join(folder.Path(), "file"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			other := released(c.other, folder.Path(), c.is, func(pv *corev1.PersistentVolume) {
				pv.Annotations = map[string]string{localpath.BaseAnnotation: base}
			})
			p := testProvisioner(fake.NewClientset(testConfig(base), other))
			pv, err := p.provision(t.Context(), testOptions(testClaim(), testClass(func(c *storagev1.StorageClass) {
				c.Parameters = map[string]string{"pathPattern": "{{.PVC.Namespace}}/{{.PVC.Name}}"}
			})))
			if err != nil {
				t.Fatal(err)
			}
			folder.PV = testPV
			if !folder.Exists() {
				t.Skip("folders cannot be marked here")
			}
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: testUID}
			if dropped, err := p.drop(t.Context(), pv); err != nil || !dropped {
				t.Errorf("it is not given up: %v", err)
			}
			folder.PV = c.owner
			if !folder.Exists() {
				t.Errorf("there is no folder of %s", c.owner)
			}
			if isLast(other) {
				if err := p.Delete(t.Context(), other); err != nil || exists(other) {
					t.Errorf("the other one is not removed: %v", err)
				}
			}
		})
	}
}
