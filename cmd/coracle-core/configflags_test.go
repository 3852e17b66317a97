package main

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// TestEffectiveHasNoSecrets: what users may put into flags, the kubelet's drop-ins and containerd's is shown without secrets.
func TestEffectiveHasNoSecrets(t *testing.T) {
	e, err := newEffective(state.Settings{
		Flags:  [][2]string{{"service-account-key-file", "/pki/sa.pub"}, {"manifest-url-header", "X-Mine:swordfish9"}, {"etcd-servers", "https://me:swordfish9@etcd:2379"}},
		Config: json.RawMessage(`{"staticPodURLHeader":{"Authorization":["Bearer swordfish9swordfish9"],"X-Mine":["swordfish9"]},"tokenNumber":123456789,"nodeStatusMaxImages":50,"apiKeys":["swordfish9"],"seccompDefault":true,"tokenFile":"/a"}`),
		TOML: "[registry]\nconfig_path = '/etc/x'\nheaders = {X-Mine = ['swordfish9']}\n" +
			"[registry.configs.'r.test'.auth]\nusername = 'me'\npassword = 'swordfish9'\nauth = '" + base64.StdEncoding.EncodeToString([]byte("me:swordfish9")) + "'\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]effective{"kubelet": e})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := writeEffective(&text, map[string]effective{"kubelet": e}); err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{string(data), text.String()} {
		if strings.Contains(shown, "swordfish") || strings.Contains(shown, "bWU6") || strings.Contains(shown, "123456789") {
			t.Errorf("there is a secret in %s", shown)
		}
		for _, want := range []string{"--service-account-key-file=/pki/sa.pub", "seccompDefault", "/etc/x", "r.test", "username", "50"} {
			if !strings.Contains(shown, want) {
				t.Errorf("no %q in %s", want, shown)
			}
		}
	}
}

// TestStaleSettings: of a process that has ended, and only of that, the settings are marked.
func TestStaleSettings(t *testing.T) {
	dirs := paths.Dirs{Run: t.TempDir()}
	if _, _, err := effectiveSettings(dirs); err == nil || !strings.Contains(err.Error(), "start it") {
		t.Errorf("before the first start: %v", err)
	}
	for process, part := range map[string]string{state.ControlPlane: "etcd", state.Node: "kubelet"} {
		state.NewRecorder(dirs, process, "v1").Settings(part, state.Settings{Flags: [][2]string{{"v", "2"}}})
	}
	parts, ended, err := effectiveSettings(dirs)
	if err != nil || len(parts) != 2 || len(ended) != 0 {
		t.Errorf("%v, %v, %v", parts, ended, err)
	}
	state.NewRecorder(dirs, state.Node, "v1").Update(func(p *state.Process) { p.PID = 1 })
	if parts, ended, err := effectiveSettings(dirs); err != nil || len(parts) != 2 || !slices.Equal(ended, []string{state.Node}) {
		t.Errorf("%v, %v, %v", parts, ended, err)
	}
}
