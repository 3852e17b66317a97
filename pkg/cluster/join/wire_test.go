package join

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// FuzzReadRequest: a request is refused, or is one of a machine for its own name. No error contains more than the request.
func FuzzReadRequest(f *testing.F) {
	cfg := config.Config{}
	cfg.Dirs.Data = f.TempDir()
	csr, err := pki.NodeRequest(cfg.Dirs, "edge-1")
	if err != nil {
		f.Fatal(err)
	}
	good, err := json.Marshal(Request{Node: "edge-1", Version: "v1.37.1+coracle.1", CSR: csr})
	if err != nil {
		f.Fatal(err)
	}
	other := bytes.Replace(good, []byte("edge-1"), []byte("edge-2"), 1)
	for _, seed := range [][]byte{
		good, other, good[:len(good)/2], nil, []byte("null"), []byte("[]"), []byte(`{"node":"../x"}`), []byte(`{"node":"a","csr":"LS0t"}`), bytes.Repeat([]byte("["), 20000),
		[]byte(`{"node":"a","csr":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KMAAKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="}`),
	} {
		f.Add(seed)
	}
	if _, key, err := ReadRequest(bytes.NewReader(good)); err != nil || len(key) != 64 {
		f.Fatalf("%s: %v", key, err)
	}
	if _, _, err := ReadRequest(bytes.NewReader(other)); err == nil || !strings.Contains(err.Error(), "the certificate request is for") {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, key, err := ReadRequest(bytes.NewReader(body))
		if err == nil && (!config.IsNodeName(r.Node) || len(key) != 64) {
			t.Errorf("%q is accepted with the key %q", r.Node, key)
		}
		if err != nil && len(err.Error()) > 4096+8*len(body) {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	})
}
