package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/filewatch"
)

// write makes files, by name below dir, that have been as they are for a while.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if past := time.Now().Add(-time.Hour); os.Chtimes(path, past, past) != nil {
			t.Fatal("cannot set the time of " + path)
		}
	}
}

const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"

func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"a.yaml": secret, "b.YML": secret, "c.json": "{", "d.txt": "no", "README": "no",
		".hidden.yaml": secret, "e.yaml~": secret, "#e.yaml#": secret, ".e.yaml.swp": "x",
		"sub/deep/f.yaml": secret, ".git/g.yaml": secret,
		"skipped.yaml": "{", "skipped.yaml.skip": "", "other.yaml.skip": "",
	})
	files, err := readDir(dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, fmt.Sprintf("%s:%s", f.id.name, f.status.State))
	}
	want := "a.yaml:pending b.YML:pending c.json:failed skipped.yaml:skipped sub/deep/f.yaml:pending"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := readDir(filepath.Join(dir, "missing"), "node"); err == nil {
		t.Error("a missing directory was read: its files would be taken for removed")
	}
}

func TestWatchDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	changes, err := watchDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		do      func()
		noticed bool
	}{
		{"a file", func() { write(t, dir, map[string]string{"a.yaml": secret}) }, true},
		{"an editor's file", func() { write(t, dir, map[string]string{".a.yaml.swp": "x", "a.yaml~": "x"}) }, false},
		{"another kind of file", func() { write(t, dir, map[string]string{"notes.txt": "x"}) }, false},
		{"a rename", func() { os.Rename(filepath.Join(dir, "notes.txt"), filepath.Join(dir, "b.yaml")) }, true},
		{"a directory with a file", func() { write(t, dir, map[string]string{"x/y/c.yaml": secret}) }, true},
		{"a file in it", func() { write(t, dir, map[string]string{"x/y/c.yaml": secret + "\n"}) }, true},
		{"a marker", func() { write(t, dir, map[string]string{"a.yaml.skip": ""}) }, true},
		{"its removal", func() { os.Remove(filepath.Join(dir, "a.yaml.skip")) }, true},
		{"a directory's removal", func() { os.RemoveAll(filepath.Join(dir, "x")) }, true},
		{"the removal of all", func() { os.RemoveAll(dir) }, true},
		{"a file after that", func() { write(t, dir, map[string]string{"a.yaml": secret}) }, true},
	} {
		patience := 2 * filewatch.Interval
		if tt.noticed {
			patience = 20 * time.Second
		}
		tt.do()
		select {
		case <-changes:
			if !tt.noticed {
				t.Errorf("%s: noticed", tt.name)
			}
		case <-time.After(patience):
			if tt.noticed {
				t.Errorf("%s: not noticed", tt.name)
			}
		}
		for quiet := false; !quiet; {
			select {
			case <-changes:
			case <-time.After(filewatch.Interval + 2*filewatch.Settle):
				quiet = true
			}
		}
	}
}

func TestInventoryNames(t *testing.T) {
	for _, tt := range []struct {
		id   fileID
		want string
	}{
		{fileID{name: "dns.yaml"}, "coracle-manifest-dns"},
		{fileID{name: "Sub Dir/My_App.yaml", node: "n1"}, "coracle-manifest-sub-dir-my-app-"},
		{fileID{name: strings.Repeat("ü/", 200) + "x.yaml", node: "n1"}, "coracle-manifest-x-"},
		{fileID{name: "üü.json", node: "n1"}, "coracle-manifest-json-"},
	} {
		got := record{file: tt.id}.configMap()
		if !strings.HasPrefix(got, tt.want) || len(got) > 253 {
			t.Errorf("%s: %s, want %s…", tt.id.name, got, tt.want)
		}
	}
	a, b := record{file: fileID{"x.yaml", "n1"}}, record{file: fileID{"x.yaml", "n2"}}
	if a.configMap() == b.configMap() {
		t.Error("two servers' files share an inventory")
	}
}
