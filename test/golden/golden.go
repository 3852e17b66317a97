// Package golden compares what tests made with files that a reviewer has read.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// update makes the files what the tests make, instead of comparing.
var update = flag.Bool("update", false, "write the golden files")

// Check fails the test if got is not what the file at path holds. With the flag -update it writes the file first.
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
