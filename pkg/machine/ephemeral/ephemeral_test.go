package ephemeral

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestRefuse(t *testing.T) {
	root := t.TempDir()
	dirs := paths.Dirs{Data: filepath.Join(root, "data")}
	if err := Refuse(dirs); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
	for name, harmless := range map[string]bool{
		dirs.Images(): true, dirs.Manifests(): true, dirs.Payloads(): true,
		filepath.Join(dirs.Etcd(), "member"): false, dirs.Cluster(): false, dirs.ServerCluster(): false, dirs.PKI(): false,
	} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
		err := Refuse(dirs)
		if (err == nil) != harmless || err != nil && !strings.Contains(err.Error(), dirs.Data+" has one already") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.RemoveAll(dirs.Data); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLeft(t *testing.T) {
	dirs := paths.Dirs{Data: t.TempDir()}
	if Left(dirs) {
		t.Error("an ephemeral server has left something where none was")
	}
	if err := os.WriteFile(dirs.Ephemeral(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !Left(dirs) {
		t.Error("what an ephemeral server left is not seen")
	}
}

func TestMissing(t *testing.T) {
	root := t.TempDir()
	want := []string{filepath.Join(root, "a"), filepath.Join(root, "a", "b")}
	if got := missing(filepath.Join(root, "a", "b")); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := missing(root); got != nil {
		t.Errorf("%q", got)
	}
}
