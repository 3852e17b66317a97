package helmcharts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
	"testing"
)

// packed makes a chart's archive from its files, without Helm.
func packed(t *testing.T, name string, files map[string]string) []byte {
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

// simple is a chart with nothing in it.
func simple(t *testing.T, version string) []byte {
	return packed(t, "web", map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: " + version + "\n"})
}
