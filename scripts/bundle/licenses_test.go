package main

import (
	"slices"
	"testing"
)

func TestLicenseFile(t *testing.T) {
	for name, want := range map[string]bool{
		"LICENSE": true, "LICENCE": true, "License.md": true, "LICENSE-APACHE": true, "COPYING": true, "NOTICE.txt": true,
		"PATENTS": true, "copyright": true, "licenses": false, "NOTICES": false, "license_test": true, "unlicensed": false,
	} {
		if got := licenseFile.MatchString(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestTexts(t *testing.T) {
	var x texts
	x.add("free\n", "a@v1")
	x.add("not so free", "b@v1")
	x.add("\nfree\r\n", "c@v1")
	x.add("free", "a@v1")
	if !slices.Equal(x.order, []string{"free", "not so free"}) || !slices.Equal(x.covers["free"], []string{"a@v1", "c@v1"}) {
		t.Errorf("got %v, %v", x.order, x.covers)
	}
}

func TestPackageVersion(t *testing.T) {
	if _, err := packageVersion(t.TempDir(), "nftables"); err == nil {
		t.Error("found a package in an empty directory")
	}
}
