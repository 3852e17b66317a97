package localcluster

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestConfigMounts: files that the configuration names by a relative path are beside it on a node; what is no such file is not.
func TestConfigMounts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"mine.yaml": "audit-policy-file: audit.yaml\nadmission-control-config-file: sub/../sub/admission.yaml\nnode-name: sub\nprofile: cis\n" +
			"token-file: /etc/hosts\nkube-scheduler-config: ../outside.yaml\ndisable: [dns]\n",
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
	}
	if !maps.Equal(got, want) {
		t.Errorf("the mounts are %v, not %v", got, want)
	}
}
