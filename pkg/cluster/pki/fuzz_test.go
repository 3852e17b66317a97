package pki

import (
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// FuzzCheckNodeRequest reads what a machine that joins, or a node that renews its certificate, sends as its request.
func FuzzCheckNodeRequest(f *testing.F) {
	d := paths.Dirs{Data: f.TempDir()}
	for _, node := range []string{"edge-1", "edge-2", "x"} {
		csr, err := NodeRequest(d, node)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(csr, "edge-1")
	}
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"), "")
	f.Fuzz(func(t *testing.T, csr []byte, node string) {
		r, err := ParseRequest(csr)
		identity, checkErr := CheckNodeRequest(csr, node)
		if checkErr != nil {
			return
		}
		if err != nil || r.Subject.CommonName != NodeUser+node || len(r.Subject.Organization) != 1 || r.Subject.Organization[0] != NodeGroup || len(identity) != 64 {
			t.Errorf("a request for %v, %v is accepted for %q as %s", r, err, node, identity)
		}
	})
}
