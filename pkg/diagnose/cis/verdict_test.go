package cis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// finding compares the machine and returns the finding of one recommendation.
func (m *Machine) finding(t *testing.T, id string) Finding {
	t.Helper()
	for _, f := range m.Run().Findings {
		if f.ID == id {
			return f
		}
	}
	t.Fatalf("there is no %s", id)
	return Finding{}
}

// TestFlagForms: what upstream reads in several forms is judged by its meaning.
func TestFlagForms(t *testing.T) {
	for _, tt := range []struct {
		id, part, flag, value string
		want                  Result
		reason                string
	}{
		{"1.2.15", api, "profiling", "False", Pass, ""},
		{"1.2.15", api, "profiling", "T", Fail, ""},
		{"1.2.20", api, "request-timeout", "-", Pass, "default"},
		{"1.2.20", api, "request-timeout", "2m", Pass, ""},
		{"1.2.20", api, "request-timeout", "0", Warn, ""},
		{"1.2.20", api, "request-timeout", "0m0s", Warn, ""},
		{"1.2.21", api, "service-account-lookup", "-", Pass, "default"},
		{"1.2.21", api, "service-account-lookup", "true", Pass, ""},
		{"1.2.21", api, "service-account-lookup", "False", Fail, ""},
		{"1.2.21", api, "service-account-lookup", "0", Fail, ""},
		{"1.2.21", api, "service-account-lookup", "f", Fail, ""},
		{"1.3.1", manager, "terminated-pod-gc-threshold", "-", Pass, "default"},
		{"1.3.1", manager, "terminated-pod-gc-threshold", "100", Pass, ""},
		{"1.3.1", manager, "terminated-pod-gc-threshold", "-1", Warn, ""},
		{"1.3.6", manager, "feature-gates", "-", Pass, "default"},
		{"1.3.6", manager, "feature-gates", "RotateKubeletServerCertificate=False", Fail, ""},
		{"1.3.6", manager, "feature-gates", "A=true, kube:RotateKubeletServerCertificate=0", Fail, ""},
		{"1.3.6", manager, "feature-gates", "AllBeta=false", Fail, ""},
		{"1.3.6", manager, "feature-gates", "RotateKubeletServerCertificate=1,AllBeta=false", Pass, ""},
		{"2.3", etcd, "auto-tls", "1", Fail, ""},
	} {
		m := server(t)
		m.set(tt.part, tt.flag, tt.value)
		f := m.finding(t, tt.id)
		if f.Result != tt.want || strings.Contains(f.Reason, "default") != (tt.reason != "") {
			t.Errorf("%s --%s=%s: %+v", tt.part, tt.flag, tt.value, f)
		}
	}
	m := server(t) // each occurrence of a list adds to it
	m.set(api, "authorization-mode", "AlwaysAllow")
	s := m.Parts[api]
	s.Flags = append(s.Flags, [2]string{"authorization-mode", "Node,RBAC"})
	m.Parts[api] = s
	if f := m.finding(t, "1.2.6"); f.Result != Fail {
		t.Errorf("a list in two parts: %+v", f)
	}
}

// TestFilesOfParts: files that replace flags are read.
func TestFilesOfParts(t *testing.T) {
	for _, tt := range []struct {
		id, part, flag, text string
		want                 Result
		says                 string
	}{
		{"1.2.1", api, "authentication-config", "jwt: []", Warn, "anonymous requests are possible"},
		{"1.2.1", api, "authentication-config", "anonymous: {enabled: true}", Warn, "anonymous requests are possible"},
		{"1.2.1", api, "authentication-config", "anonymous: {enabled: false}", Pass, "disabled"},
		{"1.2.1", api, "authentication-config", "anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}", Warn, "and nothing else is"},
		{"1.2.1", api, "authentication-config", "anonymous: {enabled: true, conditions: [{path: /livez}, {path: /api}]}", Warn, "more than health checks"},
		{"1.2.1", api, "authentication-config", "\t", Warn, "may be possible"},
		{"1.2.28", api, "encryption-provider-config", "resources: [{resources: [configmaps], providers: [{identity: {}}]}, {resources: [secrets], providers: [{aescbc: {}}]}]", Pass, "aescbc"},
		{"1.2.28", api, "encryption-provider-config", "resources: [{resources: [configmaps], providers: [{aescbc: {}}]}]", Fail, "no provider for Secrets"},
		{"1.2.28", api, "encryption-provider-config", "resources: [{resources: ['*.*'], providers: [{identity: {}}, {aescbc: {}}]}, {resources: [secrets], providers: [{kms: {}}]}]", Fail, "identity"},
		{"1.2.28", api, "encryption-provider-config", "resources: [{resources: ['*.'], providers: [{kms: {}}]}]", Pass, "kms"},
		{"1.4.1", scheduler, "config", "kind: KubeSchedulerConfiguration", Fail, "no enableProfiling"},
		{"1.4.1", scheduler, "config", "enableProfiling: false", Pass, "false"},
		{"4.2.6", proxy, "config", "mode: iptables", Fail, "iptables"},
		{"4.2.6", proxy, "config", "mode: nftables", NotApplicable, "nftables"},
		{"4.3.1", proxy, "config", "metricsBindAddress: 0.0.0.0:10249", Fail, "0.0.0.0"},
		{"4.3.1", proxy, "config", "mode: nftables", Pass, "no metricsBindAddress"},
		{"4.3.1", proxy, "config", "", Pass, "no metricsBindAddress"},
	} {
		m := server(t)
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		m.set(tt.part, tt.flag, file)
		if f := m.finding(t, tt.id); f.Result != tt.want || !strings.Contains(f.Evidence+f.Reason, tt.says) {
			t.Errorf("%s: %+v", tt.text, f)
		}
	}
	m := server(t)
	m.set(proxy, "config", "/missing")
	if f := m.finding(t, "4.3.1"); f.Result != Fail {
		t.Errorf("without its file: %+v", f)
	}
}

// TestOwnAuthority: files that cannot be read, and those that are the same, are told apart.
func TestOwnAuthority(t *testing.T) {
	m := server(t)
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	m.set(etcd, "peer-trusted-ca-file", a)
	m.set(api, "client-ca-file", b)
	expect := func(want Result, says string) {
		t.Helper()
		if f := m.finding(t, "2.7"); f.Result != want || !strings.Contains(f.Evidence, says) {
			t.Errorf("%+v", f)
		}
	}
	put(t, a)
	expect(Fail, "no such file")
	put(t, b)
	expect(Fail, "are the same")
	if err := os.WriteFile(b, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(Pass, "differ")
}

// TestReasons: what to change depends on the cluster.
func TestReasons(t *testing.T) {
	m := server(t)
	m.set(api, "audit-log-maxsize", "12")
	expect := func(id, says string) {
		t.Helper()
		if f := m.finding(t, id); !strings.Contains(f.Reason, says) {
			t.Errorf("%+v", f)
		}
	}
	expect("1.2.19", "yours")
	expect("1.2.9", "--profile=cis sets it")
	m.Config.Security.Hardened = false
	expect("1.2.19", "--hardened sets it")
	m.Config.Security.Profile = config.ProfileCIS
	expect("1.2.19", "yours")
	expect("1.2.9", "yours")
}

// TestOtherStaticPods: a pod whose name has that of a part is not the part.
func TestOtherStaticPods(t *testing.T) {
	m := server(t)
	other := filepath.Join(m.Config.Dirs.StaticPods(), "my-etcd-backup.yaml")
	put(t, other)
	if err := os.Chmod(other, 0o644); err != nil {
		t.Fatal(err)
	}
	if f := m.finding(t, "1.1.7"); f.Result != NotApplicable {
		t.Errorf("%+v", f)
	}
}
