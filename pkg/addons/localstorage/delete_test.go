package localstorage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestDeleteAsksFirst: a folder goes only if the API says now that it is to go.
func TestDeleteAsksFirst(t *testing.T) {
	for name, c := range map[string]struct {
		now  func(*corev1.PersistentVolume) // nil: it is gone
		want bool                           // the folder goes
	}{
		"as it was": {func(*corev1.PersistentVolume) {}, true},
		"kept": {func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, false},
		"used":    {func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound }, false},
		"another": {func(pv *corev1.PersistentVolume) { pv.UID = "2" }, false},
		"gone":    {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := localpath.Volume{Base: t.TempDir(), Folder: testPV + "_shop_data", PV: testPV}
			if err := v.Create(nil); err != nil {
				t.Fatal(err)
			}
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.PV, UID: "1"}}
			pv.Spec.Local = &corev1.LocalVolumeSource{Path: v.Path()}
			pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = corev1.PersistentVolumeReclaimDelete, corev1.VolumeReleased
			client := fake.NewClientset()
			if c.now != nil {
				now := pv.DeepCopy()
				c.now(now)
				client = fake.NewClientset(now)
			}
			p := testProvisioner(client)
			err := p.Delete(t.Context(), pv)
			_, ignored := err.(*controller.IgnoredError) //nolint:errorlint // as the library asks
			if err != nil && !ignored || ignored == c.want || v.Exists() == c.want {
				t.Errorf("it exists: %v, %v", v.Exists(), err)
			}
		})
	}
}

// TestCurrentWithoutNode: as long as the own Node is not known, a volume of any node may be in a folder of this one.
func TestCurrentWithoutNode(t *testing.T) {
	elsewhere := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}
	elsewhere.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"other"}}},
	}}}}
	p := testProvisioner(fake.NewClientset(elsewhere))
	if _, others, err := p.current(t.Context(), testPV); err != nil || len(others) != 0 {
		t.Errorf("with the Node: %d, %v", len(others), err)
	}
	p.node = kube.NewOwnNode("", "edge-1")
	if _, others, err := p.current(t.Context(), testPV); err != nil || len(others) != 1 {
		t.Errorf("without the Node: %d, %v", len(others), err)
	}
}

// released is a volume that is to be removed.
func released(name, path string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{localpath.NodeLabel: "edge-1"}}}
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: path}
	pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase = corev1.PersistentVolumeReclaimDelete, corev1.VolumeReleased
	for _, f := range change {
		f(pv)
	}
	return pv
}

// TestVolumeInVolume: a folder stays while another volume is in it.
func TestVolumeInVolume(t *testing.T) {
	v := localpath.Volume{Base: t.TempDir(), Folder: testPV + "_shop_data", PV: testPV}
	if err := v.Create(nil); err != nil {
		t.Fatal(err)
	}
	outer := released(v.PV, v.Path())
	p := testProvisioner(fake.NewClientset(outer, released("inner", v.Path()+"/sub"), released("beside", v.Path()+"-2")))
	if err := p.Delete(t.Context(), outer); err == nil || !strings.Contains(err.Error(), "volume inner is in ") || !v.Exists() {
		t.Errorf("got %v, it exists: %v", err, v.Exists())
	}
}

// TestSharedFolder: a folder stays as long as another volume needs it, and goes with the last one.
func TestSharedFolder(t *testing.T) {
	used := func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound }
	nobodys := func(pv *corev1.PersistentVolume) { pv.Labels = nil }
	for name, c := range map[string]struct {
		other []func(*corev1.PersistentVolume)
		stays bool
	}{
		"used": {[]func(*corev1.PersistentVolume){used}, true},
		"used and deleted": {[]func(*corev1.PersistentVolume){used, func(pv *corev1.PersistentVolume) {
			pv.DeletionTimestamp, pv.Finalizers = &metav1.Time{}, []string{"kubernetes.io/pv-protection"}
		}}, true},
		"somebody's own": {[]func(*corev1.PersistentVolume){used, nobodys, func(pv *corev1.PersistentVolume) { pv.Spec.Local.Path += "/" }}, true},
		"kept": {[]func(*corev1.PersistentVolume){func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}}, true},
		"on another node": {[]func(*corev1.PersistentVolume){used, func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"edge-2"}}},
			}}}}
		}}, false},
		"to be removed too": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := localpath.Volume{Base: t.TempDir(), Folder: testPV + "_shop_data", PV: testPV}
			if err := v.Create(nil); err != nil {
				t.Fatal(err)
			}
			pv := released(v.PV, v.Path())
			p := testProvisioner(fake.NewClientset([]runtime.Object{pv, released("other", v.Path(), c.other...)}...))
			if err := p.Delete(t.Context(), pv); err != nil || exists(pv) != c.stays {
				t.Errorf("it exists: %v, %v", exists(pv), err)
			}
		})
	}
}

func exists(pv *corev1.PersistentVolume) bool {
	return paths.Exists(kube.VolumePath(pv))
}

// TestBothReleased: of two volumes with one folder that are to be removed at once, the one whose it is removes it, and the
// other one is then removed too.
func TestBothReleased(t *testing.T) {
	base := t.TempDir()
	first, second := localpath.Volume{Base: base, Folder: "all", PV: "pvc-1"}, localpath.Volume{Base: base, Folder: "all", PV: "pvc-2"}
	for _, v := range []localpath.Volume{first, second} {
		if err := v.Create(nil); err != nil {
			t.Fatal(err)
		}
	}
	if !second.Exists() {
		t.Skip("folders cannot be marked here")
	}
	a, b := released(first.PV, first.Path()), released(second.PV, second.Path())
	p := testProvisioner(fake.NewClientset(a, b))
	if err := p.Delete(t.Context(), a); err == nil || !strings.Contains(err.Error(), "is the folder of volume pvc-2") || !exists(a) {
		t.Errorf("the first: %v, it exists: %v", err, exists(a))
	}
	for _, pv := range []*corev1.PersistentVolume{b, a} {
		if err := p.Delete(t.Context(), pv); err != nil || exists(pv) {
			t.Errorf("%s: %v, it exists: %v", pv.Name, err, exists(pv))
		}
	}
}

// TestInterruptedRemoval: to go on with a removal, which may take minutes, keeps nobody from making volumes.
func TestInterruptedRemoval(t *testing.T) {
	base := t.TempDir()
	aside := filepath.Join(base, ".deleted-"+testPV)
	pv := released(testPV, filepath.Join(base, testPV+"_shop_data"))
	p := testProvisioner(fake.NewClientset(pv))
	interrupt := func() {
		if err := os.MkdirAll(filepath.Join(aside, "much"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	gone := func() error {
		if _, err := os.Stat(aside); !os.IsNotExist(err) {
			return fmt.Errorf("%s is still there: %v", aside, err)
		}
		return nil
	}
	interrupt()
	p.folders.Lock() // somebody makes a volume
	ended := make(chan error, 1)
	go func() { ended <- p.Delete(t.Context(), pv) }()
	eventually(t, gone)
	p.folders.Unlock()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	interrupt()
	s := &Storage{dirs: []string{base}}
	s.finishDeletes(t.Context())
	if err := gone(); err != nil {
		t.Error(err)
	}
}
