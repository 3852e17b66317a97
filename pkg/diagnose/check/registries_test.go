package check

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestRegistries(t *testing.T) {
	m := &Machine{Config: config.Config{Dirs: paths.Dirs{Config: t.TempDir()}}}
	file := filepath.Join(m.Config.Dirs.Config, "registries.yaml")
	expect(t, registriesFile(t.Context(), m), OK, "does not exist")
	const login = "configs: {a.test: {auth: {username: me, password: s3cret}}}\n"
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		result     Result
		want       string
	}{
		{"mirrors, for all to read", "mirrors: {a.test: {endpoint: [b.test]}}", 0o644, OK, ""},
		{"a password", login, 0o600, OK, ""},
		{"a password for all to read", login, 0o644, Warn, "chmod 600 " + file},
		{"a former spelling", "auths: {a.test: {username: me, password: s3cret}}", 0o600, Warn, `line 1: auths is out of use: write configs."a.test".auth`},
		{"broken", login + "mirror: {}\nconfig: {}", 0o644, Fail, file + ", line 2: mirror: there is no such setting"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := errors.Join(os.WriteFile(file, []byte(tt.text), tt.mode), os.Chmod(file, tt.mode)); err != nil {
				t.Fatal(err)
			}
			found := registriesFile(t.Context(), m)
			expect(t, found, tt.result, tt.want)
			if _, text := one(found); strings.Contains(text, "s3cret") {
				t.Errorf("tells the password: %s", text)
			}
		})
	}
}
