package main

import (
	"archive/tar"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServe: an image is served by its name and by digests, under its own repository only.
func TestServe(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, file := range [][2]string{
		{"blobs/sha256/aa", `{"layers":[]}`},
		{"blobs/sha256/bb", strings.Repeat("layer", 1000)},
		{"index.json", `{"manifests":[{"mediaType":"manifest/type","digest":"sha256:aa","annotations":{"io.containerd.image.name":"registry.test/team/app:1"}}]}`},
	} {
		if err := w.WriteHeader(&tar.Header{Name: file[0], Mode: 0o644, Size: int64(len(file[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(file[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := registry{}
	if err := r.add(archive); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path, media, body string
		status            int
	}{
		{"/v2/", "", "", http.StatusOK},
		{"/v2/team/app/manifests/1", "manifest/type", `{"layers":[]}`, http.StatusOK},
		{"/v2/team/app/manifests/sha256:aa", "manifest/type", `{"layers":[]}`, http.StatusOK},
		{"/v2/team/app/blobs/sha256:bb", "application/octet-stream", strings.Repeat("layer", 1000), http.StatusOK},
		{"/v2/team/app/manifests/2", "", "", http.StatusNotFound},
		{"/v2/team/other/blobs/sha256:bb", "", "", http.StatusNotFound},
	} {
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, test.path, nil))
		if answer.Code != test.status {
			t.Errorf("%s: got status %d, want %d", test.path, answer.Code, test.status)
		}
		if test.media != "" && (answer.Header().Get("Content-Type") != test.media || answer.Body.String() != test.body) {
			t.Errorf("%s: got %s of %d bytes", test.path, answer.Header().Get("Content-Type"), answer.Body.Len())
		}
	}
}
