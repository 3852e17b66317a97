package backup

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// TestKeys: who has a private key of a backup can open it, and others are told what they need.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	quantum, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("passphrase"))
	if err != nil {
		t.Fatal(err)
	}
	sshKey, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text, 0o600)
		return path
	}
	ageFile := file("age", "# created: today\n"+identity.String()+"\n")
	sshFile := file("ssh", string(pem.EncodeToMemory(block)))
	lockedFile := file("locked", string(pem.EncodeToMemory(locked)))
	recipients := map[string][]string{
		"both":    {identity.Recipient().String(), string(ssh.MarshalAuthorizedKey(sshKey))},
		"quantum": {quantum.Recipient().String()}, "token": nil, "plain": nil,
	}
	for name, list := range recipients {
		keys := Keys{Recipients: list}
		if name == "token" {
			keys.Password = "K10secret"
		}
		files, err := Gather(paths.Dirs{Data: dir}, content("database"), nil)
		if err != nil {
			t.Fatal(err)
		}
		own, err := Write(filepath.Join(dir, name), keys, Manifest{Node: name}, files)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := Verify(filepath.Join(dir, name), own); err != nil || m.Node != name {
			t.Errorf("%s cannot be read by who wrote it: %v", name, err)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, name)); (string(text[:len(ageMagic)]) == ageMagic) != (name != "plain") {
			t.Errorf("%s begins with %.30q", name, text)
		}
	}
	for _, tt := range []struct {
		name string
		keys Keys
		want string // the error; "" for none
	}{
		{"plain", Keys{}, ""},
		{"plain", Keys{Password: "other", Identity: ageFile}, ""},
		{"both", Keys{Identity: ageFile}, ""},
		{"both", Keys{Identity: sshFile, Password: "other"}, ""},
		{"both", Keys{Password: "other"}, "give one with --identity FILE"},
		{"both", Keys{}, "give one with --identity FILE"},
		{"both", Keys{Identity: lockedFile}, "has a passphrase"},
		{"both", Keys{Identity: filepath.Join(dir, "both")}, "has no private key"},
		{"both", Keys{Identity: filepath.Join(dir, "none")}, "reading the private key"},
		{"quantum", Keys{Identity: file("quantum.key", quantum.String())}, ""},
		{"quantum", Keys{Identity: ageFile}, "give one with --identity FILE"},
		{"token", Keys{Password: "K10secret"}, ""},
		{"token", Keys{Password: "other"}, "the server token that its cluster had"},
		{"token", Keys{Identity: ageFile}, "the server token that its cluster had"},
	} {
		_, err := Verify(filepath.Join(dir, tt.name), tt.keys)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %+v: %v, want %q", tt.name, tt.keys, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s with %+v is called damaged: %v", tt.name, tt.keys, err)
		}
	}
	for _, wrong := range []string{"age1nonsense", "ssh-ed25519 AAAA", "me", ""} {
		if err := CheckRecipients([]string{wrong}); err == nil || !strings.Contains(err.Error(), "no public key") {
			t.Errorf("recipient %q: %v", wrong, err)
		}
	}
}
