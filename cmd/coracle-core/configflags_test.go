package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// TestEffectiveHasNoSecrets: what users may put into flags, the kubelet's drop-ins and containerd's is shown without secrets.
func TestEffectiveHasNoSecrets(t *testing.T) {
	e := newEffective(state.Settings{
		Flags:  [][2]string{{"service-account-key-file", "/pki/sa.pub"}, {"etcd-servers", "https://me:swordfish9@etcd:2379"}},
		Config: json.RawMessage(`{"staticPodURLHeader":{"Authorization":["Bearer swordfish9swordfish9"]},"seccompDefault":true,"tokenFile":"/a"}`),
		TOML:   "[registry.auth]\n  password = 'swordfish9'\n  config_path = '/etc/x'\n",
	})
	data, err := json.Marshal(map[string]effective{"kubelet": e})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := writeEffective(&text, map[string]effective{"kubelet": e}); err != nil {
		t.Fatal(err)
	}
	if got := newEffective(state.Settings{Config: json.RawMessage(`{"tokenNumber":123456789}`)}); string(got.Config) != `"(removed)"` {
		t.Errorf("a number: %s", got.Config)
	}
	for _, shown := range []string{string(data), text.String()} {
		if strings.Contains(shown, "swordfish") {
			t.Errorf("there is a secret in %s", shown)
		}
		for _, want := range []string{"--service-account-key-file=/pki/sa.pub", "seccompDefault", "/etc/x"} {
			if !strings.Contains(shown, want) {
				t.Errorf("no %q in %s", want, shown)
			}
		}
	}
}
