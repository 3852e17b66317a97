package payload

import (
	"path/filepath"
	"testing"
)

// TestPrefetch goes from one version to another and back, with the other's payload unpacked before and the first one's kept.
func TestPrefetch(t *testing.T) {
	dirs, one, two := testDirs(t), build(t, "1"), build(t, "2")
	if err := one.unpack(t.Context(), dirs, nil); err != nil {
		t.Fatal(err)
	}
	if err := two.prefetch(t.Context(), dirs, nil); err != nil {
		t.Fatal(err)
	}
	checkParts(t, dirs.Bin(), "1")
	if err := Hold(dirs); err != nil {
		t.Fatal(err)
	}
	again := func(int64, int64) { t.Error("unpacked again") }
	for _, p := range []payload{two, one, two} {
		if err := p.unpack(t.Context(), dirs, again); err != nil {
			t.Fatal(err)
		}
		if p.sum == one.sum { // what is not kept is removed
			if err := two.prefetch(t.Context(), dirs, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkParts(t, dirs.Bin(), "2")
	checkParts(t, filepath.Join(dirs.Payloads(), one.sum), "1")
	Release(dirs)
	if err := two.unpack(t.Context(), dirs, again); err != nil {
		t.Fatal(err)
	}
	if (store{dirs.Payloads()}).whole(one.sum, false) {
		t.Error("the first version's payload is kept for ever")
	}
}
