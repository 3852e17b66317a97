package helm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// TestFiles changes files of the directory of charts, which may be another directory in between.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "charts")
	file := filepath.Join(dir, "web.tgz")
	changed := make(chan cache.ObjectName, 10)
	r := &references{charts: dir, changed: func(name cache.ObjectName) { changed <- name }}
	expect := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing was seen of %s", what)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r.set(t.Context(), t.Context(), cache.NewObjectName("x", "web"), []ref{{name: "web.tgz"}})
	for range 2 {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		expect("a file")
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		expect("a directory that was made again")
	}
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(dir+".new", 0o700)); err != nil {
		t.Fatal(err)
	}
	expect("a file")
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Rename(dir+".new", dir)); err != nil {
		t.Fatal(err)
	}
	expect("a directory in the place of another")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("a file in it")
}

func TestDiffers(t *testing.T) {
	object := func(uid, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}}
	}
	old := object("a", "1")
	for _, tt := range []struct {
		name string
		obj  any
		want bool
	}{
		{"told again", object("a", "1"), false},
		{"changed", object("a", "2"), true},
		{"another of the name", object("b", "1"), true},
	} {
		if got := differs(old, tt.obj); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
