package pki

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRekey begins with the data of another cluster: without the keys of that one a start is refused, unless new ones
// are what is wanted.
func TestRekey(t *testing.T) {
	cfg := testConfig(t)
	mkdir(t, filepath.Join(cfg.Dirs.Etcd(), "member"))
	if err := ensure(cfg); err == nil || !strings.Contains(err.Error(), "backup") {
		t.Fatalf("new keys for data that was made with others: %v", err)
	}
	if err := os.WriteFile(cfg.Dirs.RekeyRequest(), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	ensureAll(t, cfg)
	checkAll(t, cfg)
	before, err := OwnPin(cfg.Dirs)
	if err != nil {
		t.Fatal(err)
	}
	ensureAll(t, cfg) // a start that was interrupted keeps what it has made
	if err := os.Remove(cfg.Dirs.RekeyRequest()); err != nil {
		t.Fatal(err)
	}
	ensureAll(t, cfg)
	if after, err := OwnPin(cfg.Dirs); err != nil || after != before {
		t.Errorf("%v: the authority was %s and is %s", err, before, after)
	}
}
