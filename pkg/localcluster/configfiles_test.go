package localcluster

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestConfigMounts: what the configuration names by a relative path is beside it on a node, and so is what coracle reads there unnamed. What is no such
// file or directory is not, nor is a directory that coracle writes to.
func TestConfigMounts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"mine.yaml": "audit-policy-file: audit.yaml\nadmission-control-config-file: sub/../sub/admission.yaml\nnode-name: sub\nprofile: cis\n" +
			"token-file: /etc/hosts\nkube-scheduler-config: ../outside.yaml\ndisable: [dns]\nkubelet-config-dir: ./mine/kubelet/\n" +
			"containerd-config-dir: audit.yaml\netcd-snapshot-dir: snapshots\n",
		"mine.yaml.d/10-more.yaml": "", "kubelet.d/10-unused.conf": "", "containerd.d/10-mine.toml": "", "mine/kubelet/10-mine.conf": "", "snapshots/one": "",
		"audit.yaml": "", "sub/admission.yaml": "", "../outside.yaml": "",
	} {
		path := filepath.Join(dir, "config", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	file := filepath.Join(dir, "config/mine.yaml")
	for _, m := range configMounts(file, "/etc/coracle") {
		if got[m.Target] = m.Source; !m.ReadOnly {
			t.Errorf("%s can be written", m.Target)
		}
	}
	want := map[string]string{
		"/etc/coracle/config.yaml": file, "/etc/coracle/audit.yaml": filepath.Join(dir, "config/audit.yaml"),
		"/etc/coracle/sub/admission.yaml": filepath.Join(dir, "config/sub/admission.yaml"),
		"/etc/coracle/config.yaml.d":      file + ".d", "/etc/coracle/kubelet.d": filepath.Join(dir, "config/kubelet.d"),
		"/etc/coracle/containerd.d": filepath.Join(dir, "config/containerd.d"), "/etc/coracle/mine/kubelet": filepath.Join(dir, "config/mine/kubelet"),
	}
	if !maps.Equal(got, want) {
		t.Errorf("the mounts are %v, not %v", got, want)
	}
}
