package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/client-go/util/keyutil"
)

type counter int

func (c *counter) Enqueue() { *c++ }

// TestAccountKeys: after a change of the files, tokens are signed with the first key and verified with all; damaged files change nothing.
func TestAccountKeys(t *testing.T) {
	dir := t.TempDir()
	k := &AccountKeys{Private: filepath.Join(dir, "sa.key"), Public: filepath.Join(dir, "sa.pub"), Issuer: "https://issuer.test"}
	var private, public [2][]byte
	for i := range private {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if private[i], err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
			t.Fatal(err)
		}
		if public[i], err = keyutil.MarshalPrivateKeyToPEM(key); err != nil { // a private key's public part counts
			t.Fatal(err)
		}
	}
	write := func(key, pub []byte) error {
		t.Helper()
		for name, data := range map[string][]byte{k.Private: key, k.Public: pub} {
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if k.InUse() {
			t.Error("the new files count as read")
		}
		return k.load()
	}
	var told counter
	k.AddListener(&told)
	ids := func() (all []string) {
		for _, key := range k.GetPublicKeys(context.Background(), "") {
			all = append(all, key.KeyID)
		}
		return all
	}
	if err := write(private[0], public[0]); err != nil || !k.InUse() || len(ids()) != 1 {
		t.Fatalf("%v, %v", err, ids())
	}
	old := ids()[0]
	if err := write(slices.Concat(private[1], private[0]), slices.Concat(public[1], public[0])); err != nil || len(ids()) != 2 || !slices.Contains(ids(), old) {
		t.Fatalf("%v, %v", err, ids())
	}
	if err := write([]byte("x"), public[1]); err == nil || len(ids()) != 2 || k.InUse() {
		t.Errorf("a damaged file: %v, %v", err, ids())
	}
	if err := write(private[1], public[1]); err != nil || len(ids()) != 1 || ids()[0] == old {
		t.Errorf("%v, %v", err, ids())
	}
	if told != 3 {
		t.Errorf("listeners were told %d times", told)
	}
}
