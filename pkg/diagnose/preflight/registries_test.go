package preflight

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
	cfg := config.Config{Dirs: paths.Dirs{Config: t.TempDir()}}
	file := filepath.Join(cfg.Dirs.Config, "registries.yaml")
	if err := Registries(cfg); err != nil {
		t.Errorf("without the file: %v", err)
	}
	const login = "configs: {a.test: {auth: {username: me, password: s3cret}}}\n"
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		warns      bool
		want       string
	}{
		{"mirrors, for all to read", "mirrors: {a.test: {endpoint: [b.test]}}", 0o644, false, ""},
		{"a password", login, 0o600, false, ""},
		{"a password for all to read", login, 0o644, true, "chmod 600 " + file},
		{"a former spelling", "auths: {a.test: {username: me, password: s3cret}}", 0o600, true, `line 1: auths is out of use: write configs."a.test".auth`},
		{"broken", login + "mirror: {}\nconfig: {}", 0o644, false, file + ", line 2: mirror: there is no such setting"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := errors.Join(os.WriteFile(file, []byte(tt.text), tt.mode), os.Chmod(file, tt.mode)); err != nil {
				t.Fatal(err)
			}
			err := Registries(cfg)
			if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret")) {
				t.Fatalf("got %v, want %q", err, tt.want)
			}
			if warns := errors.As(err, new(Warning)); warns != tt.warns {
				t.Errorf("it is a warning: %t", warns)
			}
		})
	}
}
