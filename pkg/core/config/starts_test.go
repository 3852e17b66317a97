package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged file: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"role": "agent", "dirs": {"data": "/d"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, err := Load(path); err != nil || cfg.Role != Agent {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestNext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	for content, want := range map[string]string{
		"data-dir: /from-file\n": "/from-file",
		"no such key: 1\n":       "/from-env", // only the environment can be believed then
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		environ := []string{"CORACLE_CONFIG=" + file}
		if want == "/from-env" {
			environ = append(environ, "CORACLE_DATA_DIR=/from-env")
		}
		environ = append(environ, "CORACLE_KUBELET_ROOT_DIR=/kubelet")
		if got := Next(environ).Dirs; got.Data != want || got.Run != "/run/coracle" || got.Kubelet != "/kubelet" {
			t.Errorf("%q: %+v", content, got)
		}
	}
}
