package pki

import (
	"slices"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/test/ondisk"
)

// TestWhatCannotBeMadeAgain is on disk before it is used: a new one would lock out everybody who trusts the old one.
func TestWhatCannotBeMadeAgain(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	files := []string{cfg.Dirs.PKI() + "/sa.key"}
	for _, a := range authorities {
		files = append(files, a.certFile(cfg.Dirs), a.keyFile(cfg.Dirs))
	}
	for _, l := range allLeaves() {
		if l.Identity {
			files = append(files, l.keyFile(cfg.Dirs))
		}
	}
	for _, file := range files {
		ondisk.Check(t, file)
	}
}

// TestKubeconfigIsNoted, so that reset removes it: it is outside coracle's directories.
func TestKubeconfigIsNoted(t *testing.T) {
	cfg := testConfig(t)
	ensureAll(t, cfg)
	entries, err := ledger.Open(cfg.Dirs).Entries()
	if err != nil || !slices.Contains(entries, ledger.Entry{Kind: ledger.File, Name: cfg.API.KubeconfigPath}) {
		t.Errorf("noted are %+v, %v", entries, err)
	}
}
