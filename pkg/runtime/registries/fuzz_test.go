package registries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad reads registries.yaml and asks for what is in it. No error has the password.
func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		`mirrors: {docker.io: {endpoint: ["https://m:5000", b], rewrite: {"^a/(.*)": "b/$1"}}, "*": {endpoint: [http://c/v2]}}`,
		`configs: {"r:5000": {auth: {username: me, password: hunter-2-hunter}, tls: {insecure_skip_verify: true, ca_file: /none}}}`,
		`auths: {r: {auth: bWU6aHVudGVyLTItaHVudGVy, token: hunter-2-hunter}}`,
		"a: &a {endpoint: [x]}\nmirrors:\n  r: {<<: *a}\n  s:\n    <<: [*a, *a]\n",
		"a: &a {<<: *a}\nmirrors: *a\n", "[", "mirrors: 1\nmirrors: ~\n? {}\n: []\n",
	} {
		f.Add(text, "docker.io", "library/app")
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text, host, repository string) {
		file := filepath.Join(dir, "registries.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Load(file)
		if err != nil {
			const password = "hunter-2-hunter"
			if strings.Contains(text, "password: "+password) && strings.Contains(err.Error(), password) {
				t.Errorf("the error has the password: %v", err)
			}
			return
		}
		got.Endpoints(host, repository, true)
		got.Endpoints(host, repository, false)
		got.Auth(host)
		got.MentionsHost(host)
	})
}
