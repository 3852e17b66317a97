package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/scripts/bundle/oci"
)

// TestReplaced: a file of this machine takes the place of a link to busybox, and keeps its mode.
func TestReplaced(t *testing.T) {
	program := filepath.Join(t.TempDir(), "dig")
	if err := os.WriteFile(program, []byte("program"), 0o750); err != nil {
		t.Fatal(err)
	}
	base := []oci.File{{Path: "bin/dig", Link: "busybox"}, {Path: "bin/sh", Link: "busybox"}}
	files, err := replaced(base, map[string]string{"bin/dig": program}, oci.File{Path: "run", Dir: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || files[0].Path != "bin/sh" || files[2].Path != "run" {
		t.Fatalf("got %v", files)
	}
	if f := files[1]; f.Path != "bin/dig" || f.Link != "" || string(f.Data) != "program" || f.Mode != 0o750 {
		t.Errorf("got %v", f)
	}
	if files, err := replaced(base, nil, oci.File{Path: "bin/sh", Mode: 0o755}); err != nil || len(files) != 2 || files[1].Path != "bin/sh" || files[1].Link != "" {
		t.Errorf("got %v, %v", files, err)
	}
	if base[0].Link != "busybox" {
		t.Error("the base was changed")
	}
	if _, err := replaced(base, map[string]string{"bin/dig": program + "-missing"}); err == nil {
		t.Error("a missing program gave no error")
	}
}
