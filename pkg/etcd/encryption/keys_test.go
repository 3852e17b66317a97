package encryption

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
)

// upstream is what kube-apiserver makes of a configuration.
func upstream(t *testing.T, k Keys) value.Transformer {
	t.Helper()
	text, hash, err := k.Config()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "encryption.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := encryptionconfig.LoadEncryptionConfig(t.Context(), file, true, "x")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.EncryptionFileContentHash != hash {
		t.Errorf("the hash is %s, and kube-apiserver's is %s", hash, cfg.EncryptionFileContentHash)
	}
	return cfg.Transformers[schema.GroupResource{Resource: resource}]
}

// TestSameAsUpstream: through all stages of a change kube-apiserver and this package write the same, and read what was written in the stages before and after.
func TestSameAsUpstream(t *testing.T) {
	none := Keys{Stage: Start}
	first, _ := none.with(time.Now())
	on := first
	on.Write = first.newest()
	second, _ := on.with(time.Now())
	rotated := second
	rotated.Write = second.newest()
	off := rotated
	off.Write = ""
	again, _ := off.with(time.Now())
	stages := []Keys{none, first, on, second, rotated, off, again}
	about := value.DefaultContext("/registry/secrets/default/x")
	for i, k := range stages {
		theirs := upstream(t, k)
		ours, err := k.Transformer()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := theirs.TransformToStorage(t.Context(), []byte("k8s\x00text"), about)
		if err != nil {
			t.Fatal(err)
		}
		if name := keyOf(stored); name != k.Write {
			t.Errorf("stage %d is written with %q instead of %q", i, name, k.Write)
		}
		if plain, stale, err := ours.TransformFromStorage(t.Context(), stored, about); err != nil || stale || string(plain) != "k8s\x00text" {
			t.Errorf("stage %d: %q, stale: %v, %v", i, plain, stale, err)
		}
		for _, neighbour := range stages[max(0, i-1):min(len(stages), i+2)] {
			other, err := neighbour.Transformer()
			if err != nil {
				t.Fatal(err)
			}
			back, _, err := other.TransformFromStorage(t.Context(), stored, about)
			if err != nil || !bytes.Equal(back, []byte("k8s\x00text")) {
				t.Errorf("what stage %d writes is not read with %d keys, of which %q writes: %v", i, len(neighbour.List), neighbour.Write, err)
			}
		}
	}
	if rotated.newest() != "key2" || again.newest() != "key3" {
		t.Errorf("keys are named %s and %s", rotated.newest(), again.newest())
	}
}

func TestKeyOf(t *testing.T) {
	for text, want := range map[string]string{
		"k8s:enc:secretbox:v1:key7:data": "key7", "k8s\x00data": "", `{"kind":"x"}`: "", "": "", "k8s:enc:secretbox:v1:": "",
		"k8s:enc:kms:v2:provider:data": "k8s:enc:kms:v2:provider", "k8s:enc:aescbc:v1:a:b": "k8s:enc:aescbc:v1:a",
	} {
		if got := keyOf([]byte(text)); got != want {
			t.Errorf("%q: %q instead of %q", text, got, want)
		}
	}
}

func TestSeal(t *testing.T) {
	k, _ := Keys{}.with(time.Now())
	seal := Seal{Name: "a", Key: [32]byte{1}}
	plain, err := json.Marshal(k)
	box := seal.close(plain)
	if err != nil || bytes.Contains(box, k.List[0].Secret) || bytes.Contains(box, []byte("key1")) {
		t.Fatalf("%v: %q", err, box)
	}
	if got, err := seal.open(box); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%v: %s", err, got)
	}
	for name, wrong := range map[string][]byte{"another authority's": nil, "cut off": box[:10], "a changed bit": append(bytes.Clone(box[:len(box)-1]), box[len(box)-1]^1)} {
		if _, err := seal.open(wrong); !errors.Is(err, errSeal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Seal{Key: [32]byte{2}}).open(box); !errors.Is(err, errSeal) {
		t.Errorf("another key: %v", err)
	}
}

// TestManyKeys: the oldest keys go at some time, and never the one that is written with.
func TestManyKeys(t *testing.T) {
	k, gone := Keys{}.with(time.Now())
	k.Write = "key1"
	for range most + 3 {
		var dropped string
		if k, dropped = k.with(time.Now()); dropped != "" {
			gone += dropped + " "
		}
	}
	if len(k.List) != most || k.List[0].Name != "key1" || k.newest() != "key20" || gone != "key2 key3 key4 key5 " {
		t.Errorf("%d keys from %s to %s, without %s", len(k.List), k.List[0].Name, k.newest(), gone)
	}
}
