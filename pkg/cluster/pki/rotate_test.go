package pki

import (
	"bytes"
	"slices"
	"testing"
)

// TestReissueNamed: the named certificates are others afterwards, with the same keys, and no others are.
func TestReissueNamed(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	leaves := func() map[string][]byte {
		all := map[string][]byte{}
		for _, l := range allLeaves() {
			der, err := Leaf(cfg.Dirs, l.Name)
			if err != nil {
				t.Fatal(err)
			}
			all[l.Name] = der
		}
		return all
	}
	named := []string{"admin", "kubelet-server", "etcd/peer"}
	before, keys := leaves(), snapshot(t, cfg)
	if err := Reissue(cfg, named); err != nil {
		t.Fatal(err)
	}
	checkAll(t, cfg)
	for name, was := range before {
		if changed := !bytes.Equal(was, leaves()[name]); changed != slices.Contains(named, name) {
			t.Errorf("%s changed: %t", name, changed)
		}
	}
	if keys["server/pki/admin.key"] != snapshot(t, cfg)["server/pki/admin.key"] {
		t.Error("the key changed")
	}
	for range 2 {
		if err := ForgetKubelet(cfg.Dirs); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Leaf(cfg.Dirs, "kubelet-server"); !missing(err) {
		t.Errorf("the kubelet's certificate is there still: %v", err)
	}
	if _, err := Leaf(cfg.Dirs, "node"); err != nil {
		t.Error(err)
	}
}
