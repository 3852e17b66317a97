package localpath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mountAt mounts a file system with a file for the time of a test.
func mountAt(t *testing.T, dir string) (file string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Skipf("mounting: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	file = filepath.Join(dir, "file")
	write(t, file)
	return file
}

// TestDeleteFindsMounts at the folder itself, and below a directory to which a link leads, but not beside the folder.
func TestDeleteFindsMounts(t *testing.T) {
	for name, at := range map[string]struct {
		dir     string // where something is mounted, from the folder
		refused bool
	}{"itself": {"", true}, "below": {"/deep/disk", true}, "beside": {"-2", false}} {
		t.Run(name, func(t *testing.T) {
			real, base := t.TempDir(), filepath.Join(t.TempDir(), "storage")
			if err := os.Symlink(real, base); err != nil {
				t.Fatal(err)
			}
			v := Volume{Base: base, Folder: testPV + "_shop_data", PV: testPV}
			if err := v.Create(nil); err != nil {
				t.Fatal(err)
			}
			file := mountAt(t, filepath.Join(real, v.Folder+at.dir))
			err := v.Delete(nil)
			if refused := err != nil && strings.Contains(err.Error(), "something is mounted at "+real); refused != at.refused || !refused && err != nil {
				t.Errorf("got %v", err)
			}
			if gone(v.Path()) == at.refused || gone(file) {
				t.Errorf("the folder is gone: %v, the file: %v", gone(v.Path()), gone(file))
			}
		})
	}
}

// TestDeleteAfterACrash: what a crash has left beside the folder is in nobody's way, and goes too.
func TestDeleteAfterACrash(t *testing.T) {
	v := Volume{Base: t.TempDir(), Folder: testPV + "_shop_data", PV: testPV}
	aside := filepath.Join(v.Base, deleted+v.PV)
	if err := v.Create(nil); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(v.Path(), "file"))
	if err := os.Rename(v.Path(), aside); err != nil {
		t.Fatal(err)
	}
	if err := v.Create(nil); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(v.Path(), "file"))
	if err := v.Delete(nil); err != nil || !gone(v.Path()) || !gone(aside) {
		t.Errorf("the folder is gone: %v, what was aside: %v, %v", gone(v.Path()), gone(aside), err)
	}
}

// TestFinishDeletesLeavesVolumes whose folders are named as they are.
func TestFinishDeletesLeavesVolumes(t *testing.T) {
	base := t.TempDir()
	for _, folder := range []string{testPV, testPV + "_shop_data"} {
		v := Volume{Base: base, Folder: folder, PV: testPV}
		if err := v.Create(nil); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(v.Path(), "file"))
		if err := FinishDeletes(t.Context(), base); err != nil || gone(filepath.Join(v.Path(), "file")) {
			t.Errorf("%s is gone: %v", folder, err)
		}
	}
}

// TestUsersFoldersStay: a volume may use a folder with files that somebody made, and a nested one need not be named by coracle.
func TestUsersFoldersStay(t *testing.T) {
	for _, folder := range []string{"data", testPV + "_shop/data"} {
		v := Volume{Base: t.TempDir(), Folder: folder, PV: testPV}
		if err := os.MkdirAll(v.Path(), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(v.Path(), "file")
		write(t, file)
		if err := v.Create(nil); err != nil {
			t.Fatal(err)
		}
		if err := v.Delete(nil); err == nil || !strings.Contains(err.Error(), "was not made by coracle for this volume") || gone(file) {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

// TestHandOverOfAnothers: only the volume whose the folder is can give it away.
func TestHandOverOfAnothers(t *testing.T) {
	base := t.TempDir()
	marks(t, base)
	owner, other := Volume{base, "shop/data", "pvc-1"}, Volume{base, "shop/data", "pvc-2"}
	if err := owner.Create(nil); err != nil {
		t.Fatal(err)
	}
	if err := other.HandOver("pvc-3"); err != nil || !owner.Exists() {
		t.Errorf("it is still the owner's: %v, %v", owner.Exists(), err)
	}
}
