package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

func TestFindInstallation(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	started := config.Config{Dirs: paths.Dirs{Data: at("data"), Run: at("run"), Config: at("etc"), Kubelet: at("kubelet")}}
	started.API.KubeconfigPath = at("elsewhere.yaml")
	data, err := json.Marshal(started)
	if err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteVolatile(started.Dirs.Resolved(), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("config.yaml"), []byte("data-dir: "+at("from-file")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name      string
		flags     paths.Dirs
		env       map[string]string
		data, run string
	}{
		{"by its run directory", paths.Dirs{Run: at("run")}, nil, at("data"), at("run")},
		{"by both", paths.Dirs{Run: at("run"), Data: at("data")}, nil, at("data"), at("run")},
		{"of another data directory", paths.Dirs{Run: at("run"), Data: at("other")}, nil, at("other"), at("other/nowhere")},
		{"by the environment", paths.Dirs{}, map[string]string{"CORACLE_RUN_DIR": at("run")}, at("data"), at("run")},
		{"never started", paths.Dirs{Run: at("none"), Data: at("other")}, nil, at("other"), at("none")},
		{"by the configuration file", paths.Dirs{Run: at("none")}, map[string]string{"CORACLE_CONFIG": at("config.yaml")}, at("from-file"), at("none")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			here := findIn(tt.flags)
			if here.dirs.Data != tt.data || here.dirs.Run != tt.run {
				t.Errorf("data %s, run %s; want %s, %s", here.dirs.Data, here.dirs.Run, tt.data, tt.run)
			}
			if ours := tt.data == at("data"); ours != (here.kubeconfig() == at("elsewhere.yaml")) {
				t.Errorf("kubeconfig %s", here.kubeconfig())
			}
		})
	}
}
