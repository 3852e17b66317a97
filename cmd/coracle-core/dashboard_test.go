package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDashboardToken: the token of a screen is made once, for its owner alone, and a short one is refused.
func TestDashboardToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := tokenOf(path)
	if err != nil || len(first) < 43 {
		t.Fatalf("the new token is %q: %v", first, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("its file is %v: %v", info, err)
	}
	if again, err := tokenOf(path); err != nil || again != first {
		t.Errorf("the second time it is %q: %v", again, err)
	}
	for _, bad := range []string{"", "short", strings.Repeat("two words ", 8)} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := tokenOf(path); err == nil {
			t.Errorf("%q is a token: %q", bad, got)
		}
	}
}

// TestOpenBrowser: the desktop gets the address in a file for this user alone, not as an argument.
func TestOpenBrowser(t *testing.T) {
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	script := "#!/bin/sh\necho \"$@\" >" + seen + "\nls -l \"$1\" >>" + seen + "\ncat \"$1\" >>" + seen + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	done, err := openBrowser("http://coracle-x.localhost:1/#secret")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(seen)
	lines := strings.SplitN(string(data), "\n", 3)
	if err != nil || strings.Contains(lines[0], "secret") || !strings.HasPrefix(lines[1], "-rw-------") || !strings.Contains(lines[2], "url=http://coracle-x.localhost:1/#secret\"") {
		t.Errorf("the desktop saw %q: %v", data, err)
	}
	done()
	if _, err := os.Stat(strings.TrimSpace(lines[0])); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
}
