package imageimport

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLists(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.txt")
	write(t, file, "# for the shop\nnginx:1.29\n\n  r.test:5000/team/app@sha256:"+strings.Repeat("0", 64)+"\r\nquay.io/a/b\n")
	got, err := names(file)
	want := []string{"docker.io/library/nginx:1.29", "r.test:5000/team/app@sha256:" + strings.Repeat("0", 64), "quay.io/a/b:latest"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
	write(t, file, "a:1\nNot A Name\n")
	if _, err := names(file); err == nil || !strings.Contains(err.Error(), "mine.txt, line 2: \"Not A Name\"") {
		t.Errorf("a wrong name gives %v", err)
	}
}
