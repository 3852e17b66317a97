package pki

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChangedAuthority: a bit in the content of an authority's certificate, which can still be read, is found before nodes get it.
func TestChangedAuthority(t *testing.T) {
	cfg := testConfig(t)
	if _, err := EnsureServer(cfg); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cfg.Dirs.PKI(), "ca.crt")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	block.Bytes[len(block.Bytes)-1] ^= 1 // of the signature
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureServer(cfg); err == nil || !strings.Contains(err.Error(), "ca.crt is damaged") {
		t.Errorf("it is used: %v", err)
	}
}
