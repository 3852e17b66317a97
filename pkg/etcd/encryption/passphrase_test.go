package encryption

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPassphrase: what is sealed is opened with the same passphrase and salt only; each error names the file.
func TestPassphrase(t *testing.T) {
	file := func(name, text string) *Passphrase {
		t.Helper()
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return &Passphrase{File: path}
	}
	const text = "the keys"
	salt := newSalt()
	right := file("right", "sixteen letters!\n")
	box, err := right.close(salt, []byte(text))
	if err != nil || strings.Contains(string(box), text) {
		t.Fatalf("%q, %v", box, err)
	}
	gone := file("gone", "sixteen letters!")
	for _, p := range []*Passphrase{right, file("copy", "sixteen letters!"), gone} {
		if got, err := p.open(salt, box); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	for _, c := range []struct {
		p    *Passphrase
		salt []byte
		want string
	}{
		{nil, salt, "--secrets-encryption-passphrase-file"},
		{&Passphrase{}, salt, "--secrets-encryption-passphrase-file"},
		{&Passphrase{File: "/nowhere/passphrase"}, salt, "/nowhere/passphrase"},
		{file("short", "fifteen letters\n"), salt, "short has 15 bytes"},
		{file("empty", ""), salt, "empty has 0 bytes"},
		{file("other", "sixteen letters?"), salt, "another passphrase than that in"},
		{right, newSalt(), "another passphrase than that in"},
	} {
		var passing *PassphraseError
		if got, err := c.p.open(c.salt, box); !errors.As(err, &passing) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %q, %v", c.want, got, err)
		}
	}
	if err := os.Remove(gone.File); err != nil {
		t.Fatal(err)
	}
	if got, err := gone.open(salt, box); err != nil || string(got) != text {
		t.Errorf("after the file is gone: %q, %v", got, err)
	}
	if _, err := gone.open(newSalt(), box); err == nil {
		t.Error("with another salt, the file being gone, it is opened")
	}
	var none *Passphrase
	if got, err := none.close(nil, []byte(text)); err != nil || string(got) != text {
		t.Errorf("without a salt: %q, %v", got, err)
	}
}
