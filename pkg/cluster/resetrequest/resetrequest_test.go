package resetrequest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestCopyData(t *testing.T) {
	d := paths.Dirs{Data: t.TempDir()}
	if err := CopyData(d); err != nil {
		t.Error("without a request:", err)
	}
	log := filepath.Join("member", "wal", "0.wal")
	if err := os.MkdirAll(filepath.Dir(filepath.Join(d.Etcd(), log)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Etcd(), log), []byte("log"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Request{Snapshot: filepath.Join(d.Snapshots(), "one")}
	if err := os.MkdirAll(d.Snapshots(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(d.ResetRequest()); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(d.Etcd(), "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	if err := CopyData(d); err == nil || !strings.Contains(err.Error(), "symbolic link") || paths.Exists(r.Snapshot) {
		t.Errorf("data with a link: %v", err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call finds the copy
		if err := CopyData(d); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(r.Snapshot, log)); string(data) != "log" {
		t.Errorf("the copy has %q: %v", data, err)
	}
}
