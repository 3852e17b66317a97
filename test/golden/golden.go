// Package golden compares output of tests with files that were reviewed.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// update writes the files instead of comparing them.
var update = flag.Bool("update", false, "write the golden files")

// Check fails the test if got differs from the file at path. With the flag -update it writes the file first.
func Check[T string | []byte](t *testing.T, path string, got T) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run with -update to write it", err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs; run with -update if it should, and look at the difference\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
