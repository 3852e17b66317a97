package supportbundle

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

func TestClean(t *testing.T) {
	var deployment map[string]any
	err := json.Unmarshal([]byte(`{
		"metadata": {"name": "web", "managedFields": [{}], "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{hunter2}", "a": "b"}},
		"spec": {"template": {"spec": {"containers": [{
			"name": "c", "args": ["--db-password", "hunter2", "--v", "2"], "lifecycle": {"preStop": {"exec": {"command": ["stop", "--token", "hunter2"]}}},
			"env": [{"name": "A", "value": "hunter2"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
			"livenessProbe": {"httpGet": {"httpHeaders": [{"name": "X-Key", "value": "hunter2"}]}}
		}]}}}
	}`), &deployment)
	if err != nil {
		t.Fatal(err)
	}
	clean(deployment)
	data, err := json.Marshal(deployment)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if strings.Contains(text, "hunter2") || strings.Contains(text, "managedFields") {
		t.Error(text)
	}
	for _, kept := range []string{`"a":"b"`, `"name":"A"`, `"secretKeyRef":{"key":"k","name":"s"}`, `"name":"X-Key"`, `"--v","2"`} {
		if !strings.Contains(text, kept) {
			t.Errorf("%s is gone: %s", kept, text)
		}
	}
}

// TestNoSecrets: the table never has Secrets in it, nor ConfigMaps of users.
func TestNoSecrets(t *testing.T) {
	for _, r := range resources {
		if r.gvr.Resource == "secrets" || r.gvr.Resource == "configmaps" && len(r.namespaces) == 0 {
			t.Errorf("%s", r.gvr)
		}
	}
}

func TestKnown(t *testing.T) {
	root := t.TempDir()
	dirs := paths.Dirs{Data: filepath.Join(root, "d"), Run: filepath.Join(root, "r"), Config: filepath.Join(root, "c")}
	for name, text := range map[string]string{
		dirs.Token():                                   "C1" + strings.Repeat("0f", 32) + "::abcdef.secretsecret1234\n",
		filepath.Join(dirs.PKI(), "sa.key"):            "-----BEGIN EC PRIVATE KEY-----\nAAAABBBBCCCCDDDDEEEE\n-----END EC PRIVATE KEY-----\n",
		filepath.Join(dirs.Config, "coracle.env"):      "CORACLE_TOKEN='chosen by people'\nCORACLE_DEBUG=1\n",
		filepath.Join(dirs.NodePKI(), "both.pem"):      "-----BEGIN CERTIFICATE-----\nFFFFGGGGHHHHIIIIJJJJ\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nKKKKLLLLMMMMNNNNOOOO\n",
		filepath.Join(dirs.Config, "config.yaml"):      "agent-token: another one\n",
		filepath.Join(dirs.Config, "encryption.yaml"):  "keys: [{name: k, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]\n",
		filepath.Join(root, "docs", "not-looked-at.y"): "password: nothing of ours",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := redact.New(Known(dirs, config.Config{}, []string{"CORACLE_AGENT_TOKEN=of the environment", "HOME=/root/at/home"})...)
	for text, leaks := range map[string]bool{
		"x secretsecret1234 x": true, "AAAABBBBCCCCDDDDEEEE": true, "FFFFGGGGHHHHIIIIJJJJ": false, "KKKKLLLLMMMMNNNNOOOO": true,
		"chosen by people": true, "c2VjcmV0IGlzIHNlY3VyZQ==": true, "of the environment": true, "/root/at/home": false, "nothing of ours": false,
	} {
		if (r.String(text) != text) != leaks {
			t.Errorf("%s: leaks %v", text, !leaks)
		}
	}
}
