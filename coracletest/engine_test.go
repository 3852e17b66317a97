package coracletest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSweep: files of containers that were killed are removed when no container runs that may have them.
func TestSweep(t *testing.T) {
	programs, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", programs)
	t.Setenv("HOME", cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	dir, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) string { return filepath.Join(dir, "shared", name) }
	for name, age := range map[string]time.Duration{"killed": 2 * startTime, "starts": 0} {
		if err := os.MkdirAll(filepath.Join(of(name), "bin"), 0o700); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(of(name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		containers string
		there      map[string]bool
	}{
		{"coracletest-runs", map[string]bool{"killed": true, "starts": true}},
		{"", map[string]bool{"killed": false, "starts": true}},
	} {
		program := filepath.Join(programs, "docker")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n[ $1 != ps ] || echo "+test.containers+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := newEngine(t.Context(), program, Options{}); err != nil {
			t.Fatal(err)
		}
		for name, want := range test.there {
			if _, err := os.Stat(of(name)); (err == nil) != want {
				t.Errorf("with containers %q, %s is there: %v, want %v", test.containers, name, !want, want)
			}
		}
	}
}
