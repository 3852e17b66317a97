package main

import "testing"

// TestShimMatchesContainerd: shims and the containerd in coracle-core need the same version of their protocol.
func TestShimMatchesContainerd(t *testing.T) {
	const path = "github.com/containerd/containerd/v2"
	library, err := moduleVersion("../..", path)
	if err != nil {
		t.Fatal(err)
	}
	shim, err := moduleVersion(".", path)
	if err != nil {
		t.Fatal(err)
	}
	if library != shim {
		t.Errorf("coracle-core has containerd %s, the shim is of %s", library, shim)
	}
}
