package manifests

import (
	"net/netip"
	"testing"

	embedded "github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/addons"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// TestEmbeddedKindsAreKnown keeps discovery out of a start: one kind that is not known costs a round trip and a megabyte.
func TestEmbeddedKindsAreKnown(t *testing.T) {
	network := config.Network{Domain: "cluster.local", Backend: config.VXLAN, DNS: []netip.Addr{netip.MustParseAddr("10.43.0.10")}}
	files, err := embedded.Render(config.Config{Network: network}, addons.Manifests()...)
	if err != nil {
		t.Fatal(err)
	}
	var a applier // without a discovery client, so asking it would panic
	for _, e := range files {
		for _, o := range newFile(fileID{name: e.Name}, e.Data).objects {
			kind := o.GroupVersionKind()
			if _, ok := known[kind.GroupKind()]; !ok {
				t.Errorf("%s: %s is not among the known kinds", e.Name, kind)
				continue
			}
			mapping, err := a.mapping(kind)
			if err != nil {
				t.Errorf("%s: %v", e.Name, err)
				continue
			}
			t.Logf("%s: %s is %s", e.Name, kind.Kind, mapping.Resource.Resource)
		}
	}
}
