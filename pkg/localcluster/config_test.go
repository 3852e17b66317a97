package localcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// TestConfigDirectory: the files of a configuration directory appear beside config.yaml, and a single file under that name, with the kubelet's drop-ins.
func TestConfigDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.yaml", "authorization.yaml", "kubelet.d/10-site.conf"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for from, why := range map[string]string{filepath.Join(dir, "config.yaml"): "kubelet.d as well", dir: "is the directory"} {
		if err := new(Snapshot).read(Store{}, Record{Config: from}); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("a snapshot keeps a part of %s: %v", from, err)
		}
	}
	for from, want := range map[string]map[string]string{
		filepath.Join(dir, "config.yaml"): {"/etc/coracle/config.yaml": "config.yaml", "/etc/coracle/kubelet.d": "kubelet.d"},
		dir:                               {"/etc/coracle/config.yaml": "config.yaml", "/etc/coracle/authorization.yaml": "authorization.yaml", "/etc/coracle/kubelet.d": "kubelet.d"},
	} {
		got := configMounts(from, "/etc/coracle")
		if len(got) != len(want) {
			t.Errorf("%q is mounted as %v", from, got)
		}
		for _, m := range got {
			if m != (nshost.Mount{Source: filepath.Join(dir, want[m.Target]), Target: m.Target, ReadOnly: true}) {
				t.Errorf("%q is mounted as %v", from, m)
			}
		}
	}
	if err := new(Snapshot).read(Store{}, Record{Config: dir}); err == nil || err.Error() != "the cluster's configuration is the directory "+dir+
		", and a snapshot keeps one file: make the cluster with a file for --config" {
		t.Errorf("a snapshot of it: %v", err)
	}
}
