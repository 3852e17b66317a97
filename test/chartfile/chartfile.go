// Package chartfile makes charts' archives for tests, without Helm.
package chartfile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
	"testing"
)

// Pack makes the archive of a chart from its files, by their paths within the chart.
func Pack(t *testing.T, name string, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: name + "/" + path, Mode: 0o644, Size: int64(len(files[path])), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(files[path])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
