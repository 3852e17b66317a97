package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

// TestChangedBits changes each bit of a summed file in turn: it is found, or the content is the same.
func TestChangedBits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	want := map[string]string{"address": "10.1.2.3", "name": "a"}
	if err := WriteJSON(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	jsonFound := flipEach(t, path, func() bool {
		var got map[string]string
		_, err := ReadJSON(path, &got)
		return err == nil && (len(got) != 2 || got["address"] != want["address"] || got["name"] != want["name"])
	})
	if err := WriteSummed(path, "12 345", 0o600); err != nil {
		t.Fatal(err)
	}
	textFound := flipEach(t, path, func() bool {
		text, ok, err := ReadSummed(path)
		return err != nil || ok && text != "12 345"
	})
	if !jsonFound || !textFound {
		t.Error("the files are not read at all")
	}
}

func flipEach(t *testing.T, path string, wrong func() bool) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range data {
		for bit := range 8 {
			data[at] ^= 1 << bit
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if wrong() {
				t.Errorf("bit %d of byte %d of %q is not found", bit, at, data)
			}
			data[at] ^= 1 << bit
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return !wrong()
}

// TestWithoutChecksum: files of former versions have none, and a reader of those ignores it.
func TestWithoutChecksum(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"{}", "{}\n", "{}\n \t \n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if found, err := ReadJSON(path, &got); err != nil || !found {
			t.Errorf("%q: %v", text, err)
		}
	}
}
