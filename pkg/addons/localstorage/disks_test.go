package localstorage

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// TestDiskNotMounted: where a disk with volumes is not mounted, no volume is made, and none is taken for removed.
func TestDiskNotMounted(t *testing.T) {
	disk := t.TempDir()
	base, second := filepath.Join(disk, "volumes"), filepath.Join(t.TempDir(), "volumes")
	mount := func() {
		t.Helper()
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, ""); err != nil {
			t.Skipf("mounting: %v", err)
		}
	}
	mount()
	defer func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }()
	p := testProvisioner(fake.NewClientset(testConfig(base)))
	pv, err := p.provision(t.Context(), testOptions(testClaim(), testClass()))
	if err != nil {
		t.Fatal(err)
	}
	if got := pv.Annotations[localpath.MountAnnotation]; got != disk {
		t.Errorf("the disk is mounted at %q, not %q", disk, got)
	}
	pv.Status.Phase = corev1.VolumeReleased
	if err := p.volumes.Add(pv); err != nil {
		t.Fatal(err)
	}
	p.client = fake.NewClientset(testConfig(base), pv)

	if err := unix.Unmount(disk, 0); err != nil {
		t.Fatal(err)
	}
	claim := testClaim(func(c *corev1.PersistentVolumeClaim) { c.Name = "more" })
	_, err = p.provision(t.Context(), testOptions(claim, testClass()))
	var other elsewhere
	if !errors.As(err, &other) || !strings.Contains(err.Error(), "mounted at "+disk+", which is not mounted: mount it") {
		t.Errorf("a volume on a disk that is not there: %v", err)
	}
	if _, err := os.Stat(base); !os.IsNotExist(err) {
		t.Errorf("there is something where no disk is: %v", err)
	}
	if err := p.Delete(t.Context(), pv); err == nil || !strings.Contains(err.Error(), "which is not mounted: the folder is removed once it is") {
		t.Errorf("the folder is called removed: %v", err)
	}
	p.client = fake.NewClientset(testConfig(base, second), pv)
	if made, err := p.provision(t.Context(), testOptions(claim, testClass())); err != nil || !strings.HasPrefix(kube.VolumePath(made), second) {
		t.Errorf("another directory is not taken: %v", err)
	}

	// Somebody gives up that disk, and moves the data.
	if err := (localpath.Volume{Base: base, Folder: testPV + "_shop_data", PV: testPV}).Create(nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), pv); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(kube.VolumePath(pv)); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}

// TestMovedDisk: of volumes that were moved from a disk that is given up, one that is missing holds up no other. While all
// are missing, who is to say that it is given up is told of all.
func TestMovedDisk(t *testing.T) {
	for name, c := range map[string]struct {
		moved string // where the disk was of the one that is there; "": that is missing too
		lost  string // the volumes that are told of
	}{
		"moved":         {"/nowhere", ""},
		"not moved":     {"", "pvc-a pvc-b"},
		"on other disk": {"/elsewhere", "pvc-b"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			p := testProvisioner(fake.NewClientset(testConfig(base)))
			for pv, mount := range map[string]string{"pvc-a": cmp.Or(c.moved, "/nowhere"), "pvc-b": "/nowhere"} {
				v := localpath.Volume{Base: base, Folder: pv, PV: pv}
				if pv == "pvc-a" && c.moved != "" {
					if err := v.Create(nil); err != nil {
						t.Fatal(err)
					}
					if !v.Exists() {
						t.Skip("folders cannot be marked here")
					}
				}
				if err := p.volumes.Add(released(pv, v.Path(), func(pv *corev1.PersistentVolume) {
					pv.Annotations = map[string]string{localpath.MountAnnotation: mount}
				})); err != nil {
					t.Fatal(err)
				}
			}
			_, err := p.provision(t.Context(), testOptions(testClaim(), testClass()))
			switch told := "kubectl annotate pv " + c.lost + " coracle.io/local-volume-mount-"; {
			case c.lost == "" && err != nil:
				t.Error(err)
			case c.lost != "" && (err == nil || !strings.HasSuffix(err.Error(), told)):
				t.Errorf("got %v, want %s", err, told)
			}
		})
	}
}
