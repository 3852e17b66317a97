package localstorage

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
)

// TestChoose: a volume goes where there is the most room, and is found again wherever it is.
func TestChoose(t *testing.T) {
	dir := t.TempDir()
	small, large := filepath.Join(dir, "small"), filepath.Join(dir, "large")
	for disk, size := range map[string]string{small: "size=1m", large: "size=4m"} {
		if err := os.Mkdir(disk, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, size); err != nil {
			t.Skipf("mounting: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	}
	p := plan{folder: testPV + "_shop_data"}
	p.options.PVName = testPV
	choose := func(want string) {
		t.Helper()
		for _, p.bases = range [][]string{{small, large}, {large, small}} {
			if v, err := p.choose(); err != nil || v.Base != want {
				t.Errorf("of %q it chooses %q, %v", p.bases, v.Base, err)
			}
		}
	}
	choose(large)
	if err := (localpath.Volume{Base: small, Folder: p.folder, PV: testPV}).Create(nil); err != nil {
		t.Fatal(err)
	}
	choose(small)

	p.folder = "shop/data" // by a pathPattern
	choose(large)
	if err := (localpath.Volume{Base: small, Folder: p.folder, PV: "pvc-of-an-earlier-claim"}).Create(nil); err != nil {
		t.Fatal(err)
	}
	choose(small)
}
