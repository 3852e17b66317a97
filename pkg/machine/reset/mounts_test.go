package reset

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
)

func TestInside(t *testing.T) {
	for path, want := range map[string]bool{
		"/run/coracle/containerd": true, "/run/coracle": false, "/run/coracle-2": false, "/run/coracle2/x": false, "/run": false, "/": false,
	} {
		if got := inside(path, "/run/coracle"); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
	if inside("/run/coracle", "") || inside("/run/coracle", "/") {
		t.Error("everything is inside of a directory that is not set")
	}
}

// TestNamespacesOfOthersStay: another program that uses CNI names them as coracle's containerd does.
func TestNamespacesOfOthersStay(t *testing.T) {
	m, _ := host(t)
	dir := m.host(footprint.NetNSDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cni-" + ourUID, "cni-" + foreignUID, "vpn"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.seen.database = []byte("… cni-" + ourUID + " …")
	apply(t, m, findNetNS)
	if got := tree(t, dir); !slices.Equal(got, []string{"/cni-" + foreignUID, "/vpn"}) {
		t.Errorf("left: %q", got)
	}
}
