package localpath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const testPV = "pvc-11111111-2222-3333-4444-555555555555"

// marks skips a test where folders cannot be marked.
func marks(t *testing.T, dir string) {
	t.Helper()
	probe := filepath.Join(dir, "probe")
	if err := os.Mkdir(probe, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(probe)
	if err := unix.Setxattr(probe, Mark, []byte("x"), 0); err != nil {
		t.Skipf("%s cannot be set on %s: %v", Mark, dir, err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}

func TestCreateAndDelete(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, folder := range []string{testPV + "_shop_data", "shop/data/deep"} {
		v := Volume{Base: filepath.Join(t.TempDir(), "storage"), Folder: folder, PV: testPV}
		limited := 0
		for range 2 { // the second time after a crash
			if err := v.Create(func(*os.File, bool) error { limited++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if info, err := os.Stat(v.Path()); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("the folder is %v %v", info.Mode(), err)
		}
		if info, err := os.Stat(v.Base); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory is %v %v", info.Mode(), err)
		}
		if limited == 0 {
			t.Error("it was not limited")
		}
		if found := Find(t.Context(), v.Base); len(found) != 1 && !noMarks(v) {
			t.Errorf("found %+v", found)
		}
		write(t, filepath.Join(v.Path(), "file"))
		if err := v.Create(nil); err != nil {
			t.Fatal(err)
		}
		if noMarks(v) && !v.namedAfterPV() {
			t.Logf("%s: not removed where folders cannot be marked", folder)
			continue
		}
		if !v.Exists() || (Volume{Base: v.Base, Folder: v.Folder, PV: "pvc-2"}).Exists() {
			t.Error("Exists does not tell whose the folder is")
		}
		for range 2 {
			if err := v.Delete(nil); err != nil {
				t.Fatal(err)
			}
		}
		if left, _ := os.ReadDir(v.Base); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

func noMarks(v Volume) bool {
	var buf [256]byte
	_, err := unix.Getxattr(v.Path(), Mark, buf[:])
	return err != nil
}

// TestDeleteRefuses: what is not the volume's own stays.
func TestDeleteRefuses(t *testing.T) {
	base := t.TempDir()
	marks(t, base)
	for folder, pv := range map[string]string{"etc": "pvc-1", "data_backup": "data"} {
		file := filepath.Join(base, folder, "passwd")
		if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file)
		err := Volume{Base: base, Folder: folder, PV: pv}.Delete(nil)
		if err == nil || !strings.Contains(err.Error(), "was not made by coracle for this volume") || gone(file) {
			t.Errorf("a foreign folder: %v", err)
		}
	}

	other := Volume{Base: base, Folder: "shop/data", PV: "pvc-2"}
	if err := other.Create(nil); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(other.Path(), "file"))
	err := Volume{Base: base, Folder: "shop/data", PV: "pvc-1"}.Delete(nil)
	if err == nil || !strings.Contains(err.Error(), "is the folder of volume pvc-2") || gone(filepath.Join(other.Path(), "file")) {
		t.Errorf("another volume's folder: %v", err)
	}

	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(base, "pvc-3_a_b")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(outside, "file"))
	if err := (Volume{Base: base, Folder: "pvc-3_a_b", PV: "pvc-3"}).Delete(nil); err == nil || gone(filepath.Join(outside, "file")) {
		t.Errorf("a link that leads out: %v", err)
	}
}

func TestDeleteRefusesMounts(t *testing.T) {
	v := Volume{Base: t.TempDir(), Folder: testPV + "_shop_my data", PV: testPV}
	if err := v.Create(nil); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(v.Path(), "disk")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", inner, "tmpfs", 0, ""); err != nil {
		t.Skipf("mounting: %v", err)
	}
	defer func() { _ = unix.Unmount(inner, unix.MNT_DETACH) }()
	write(t, filepath.Join(inner, "file"))
	if err := v.Delete(nil); err == nil || !strings.Contains(err.Error(), "something is mounted at "+inner) {
		t.Errorf("got %v", err)
	}
	if gone(filepath.Join(inner, "file")) {
		t.Error("what was mounted is gone")
	}
}

// TestReuse: a pathPattern gives a claim the folder of an earlier one of its name, with the data; the earlier PV
// cannot remove it any more.
func TestReuse(t *testing.T) {
	base := t.TempDir()
	marks(t, base)
	first, second := Volume{base, "shop/data", "pvc-1"}, Volume{base, "shop/data", "pvc-2"}
	if err := first.Create(nil); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(first.Path(), "file")
	write(t, file)
	if err := second.Create(func(_ *os.File, empty bool) error {
		if empty {
			t.Error("the folder is called empty")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := first.Delete(nil); err == nil || gone(file) {
		t.Errorf("the first: %v", err)
	}
	if err := second.HandOver("pvc-1"); err != nil {
		t.Fatal(err)
	}
	if err := second.Delete(nil); err == nil || gone(file) {
		t.Errorf("the second, which has given it back: %v", err)
	}
	if err := first.Delete(nil); err != nil || !gone(file) {
		t.Errorf("the first, which has it again: %v", err)
	}
	if err := first.HandOver("pvc-2"); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestCreateKeepsMode: an empty folder that somebody made with another mode keeps it.
func TestCreateKeepsMode(t *testing.T) {
	v := Volume{Base: t.TempDir(), Folder: testPV + "_shop_data", PV: testPV}
	if err := os.Mkdir(v.Path(), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := v.Create(nil); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(v.Path()); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
}

// TestFinishDeletesLeavesOthers: a folder whose name is like that of one that is being removed, and whose mark is another
// volume's, stays.
func TestFinishDeletesLeavesOthers(t *testing.T) {
	base := t.TempDir()
	marks(t, base)
	v := Volume{base, "shop/data", "pvc-1"}
	if err := v.Create(nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(v.Path(), filepath.Join(base, deleted+"other")); err != nil {
		t.Fatal(err)
	}
	if err := FinishDeletes(t.Context(), base); err != nil || gone(filepath.Join(base, deleted+"other")) {
		t.Errorf("another volume's folder: %v", err)
	}
}

// TestRemoveEmpty: only an empty folder of the volume itself is removed.
func TestRemoveEmpty(t *testing.T) {
	base := t.TempDir()
	marks(t, base)
	release := func(*os.File) error { return nil }
	mine, other := Volume{base, "shop/data", "pvc-1"}, Volume{base, "shop/data", "pvc-2"}
	if err := mine.Create(nil); err != nil {
		t.Fatal(err)
	}
	if removed, err := other.RemoveEmpty(release); removed || err != nil || gone(mine.Path()) {
		t.Errorf("another volume's: %v, %v", removed, err)
	}
	file := filepath.Join(mine.Path(), "file")
	write(t, file)
	if removed, err := mine.RemoveEmpty(release); removed || err != nil || gone(file) {
		t.Errorf("with a file: %v, %v", removed, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if removed, err := mine.RemoveEmpty(release); !removed || err != nil || !gone(filepath.Join(base, "shop")) {
		t.Errorf("empty: %v, %v", removed, err)
	}
}

// TestReplacedBeforeDelete: a pod exchanges the folder after it was looked at and before it is put aside. What it is then
// stays, under its name.
func TestReplacedBeforeDelete(t *testing.T) {
	v := Volume{Base: t.TempDir(), Folder: testPV + "_shop_data", PV: testPV}
	if err := v.Create(nil); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(v.Base)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	looked, err := openDir(root, v.Folder)
	if err != nil {
		t.Fatal(err)
	}
	defer looked.Close()
	if err := os.Rename(v.Path(), filepath.Join(v.Base, "moved")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(v.Path(), "file")
	if err := os.Mkdir(v.Path(), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, file)
	if err := v.putAside(root, looked); err == nil || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("got %v", err)
	}
	if gone(file) || !gone(filepath.Join(v.Base, deleted+v.PV)) {
		t.Error("the other folder is not where it was")
	}
	again, err := openDir(root, v.Folder)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := v.putAside(root, again); err != nil || !gone(v.Path()) {
		t.Errorf("without an exchange: %v", err)
	}
}

func TestInterruptedDelete(t *testing.T) {
	base := t.TempDir()
	mine := filepath.Join(base, deleted+"2023")
	if err := os.Mkdir(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(mine, "file"))
	for _, v := range []Volume{
		{Base: base, Folder: testPV + "_shop_data", PV: testPV},
		{Base: base, Folder: "shop", PV: "other"},
	} {
		if v.PV == "other" {
			marks(t, base)
		}
		if err := v.Create(nil); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(v.Path(), "file"))
		crash := errors.New("crash")
		if err := v.Delete(func(*os.File) error { return crash }); !errors.Is(err, crash) {
			t.Fatal(err)
		}
		if found := Find(t.Context(), v.Base); len(found) != 0 {
			t.Errorf("what is being removed is listed: %v", found)
		}
		if err := FinishDeletes(t.Context(), v.Base); err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(v.Base); len(left) != 1 || gone(filepath.Join(mine, "file")) {
			t.Errorf("left: %v", left)
		}
	}
}

// TestNoRoom: the error of a full disk can be told from others.
func TestNoRoom(t *testing.T) {
	base := t.TempDir()
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "nr_inodes=1"); err != nil {
		t.Skipf("mounting: %v", err)
	}
	defer func() { _ = unix.Unmount(base, unix.MNT_DETACH) }()
	if err := (Volume{Base: base, Folder: "pvc-1_shop_data", PV: "pvc-1"}).Create(nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
}

func TestSize(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Size(dir); got < 1<<20 || got > 2<<20 {
		t.Errorf("%d bytes", got)
	}
	if free, err := Free(filepath.Join(dir, "not", "there")); err != nil || free == 0 {
		t.Errorf("free: %d %v", free, err)
	}
}

func TestFindEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	base := t.TempDir()
	if err := os.Mkdir(filepath.Join(base, testPV+"_shop_data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if found := Find(ctx, base); len(found) != 1 {
		t.Errorf("found %v", found)
	}
	cancel()
	if found := Find(ctx, base); len(found) != 0 {
		t.Errorf("after the end of its context it found %v", found)
	}
}

func TestSummary(t *testing.T) {
	base := t.TempDir()
	if got := Summary(base); got != "" {
		t.Errorf("nothing is %q", got)
	}
	for i, want := range []string{"1 volume with ", "2 volumes with 4.0 MiB"} {
		v := Volume{Base: base, Folder: []string{"pvc-11111111-2222-3333-4444-555555555555_a_b", "pvc-21111111-2222-3333-4444-555555555555_a_b"}[i]}
		v.PV = v.Folder[:40]
		if err := v.Create(nil); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(v.Path(), "file"), make([]byte, 2<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Summary(base); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestNesting: a volume is not made in another's folder, whose pods would have it.
func TestNesting(t *testing.T) {
	base := t.TempDir()
	marks(t, base)
	outer := Volume{Base: base, Folder: "shop/data", PV: "pvc-1"}
	if err := outer.Create(nil); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"shop/data/pvc-2", "shop/data/a/b"} {
		err := Volume{Base: base, Folder: folder, PV: "pvc-2"}.Create(nil)
		if err == nil || !strings.Contains(err.Error(), "shop/data is the folder of volume pvc-1") || !gone(filepath.Join(base, "shop/data/a")) {
			t.Errorf("%s: %v", folder, err)
		}
	}
	if err := (Volume{Base: base, Folder: "shop/other", PV: "pvc-2"}).Create(nil); err != nil {
		t.Error(err)
	}
}

// TestLinkInside: a link that stays in the directory leads to somebody else's volume, and is not followed.
func TestLinkInside(t *testing.T) {
	base := t.TempDir()
	other := Volume{Base: base, Folder: "b/data", PV: "pv-other"}
	if err := other.Create(nil); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(base, "a/data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"last": "../../b/data", "middle": "../../b"} {
		if err := os.Symlink(target, filepath.Join(base, "a/data", link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"a/data/last", "a/data/middle/data"} {
		v := Volume{Base: base, Folder: folder, PV: "pv-new"}
		if err := v.Create(nil); err == nil || v.Exists() {
			t.Errorf("%s: got %v, it exists: %v", folder, err, v.Exists())
		}
		if err := v.Delete(nil); err == nil {
			t.Errorf("%s: removed", folder)
		}
	}
	if !other.Exists() {
		t.Error("the other volume is another's now")
	}
}
