package coracletest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSharedDirectories: of the directories that containers share, those of containers that are gone are removed, and each container's with it.
func TestSharedDirectories(t *testing.T) {
	programs, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", programs)
	t.Setenv("HOME", cache)
	t.Setenv("XDG_CACHE_HOME", cache)
	const docker = "#!/bin/sh\n[ $1 != ps ] || echo coracletest-runs\n"
	program := filepath.Join(programs, "docker")
	if err := os.WriteFile(program, []byte(docker), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) string { return filepath.Join(dir, "containers", containerPrefix+name) }
	for name, age := range map[string]time.Duration{"runs": 2 * startTime, "killed": 2 * startTime, "starts": 0} {
		if err := os.MkdirAll(filepath.Join(of(name), "coracle-run"), 0o700); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(of(name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	e, err := newEngine(t.Context(), program, Options{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(path string, want bool) {
		t.Helper()
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, !want, want)
		}
	}
	check(of("runs"), true)
	check(of("killed"), false)
	check(of("starts"), true)
	check(e.shared, true)
	e.close()
	check(e.shared, false)
}
