package localcluster

import (
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// configMounts binds the servers' configuration file into a node's directory, and the files that it names by a relative path, which is relative to it.
// Of a directory all files are there. The node's directory stays its own, since coracle writes the kubeconfig there.
func configMounts(file, dir string) []nshost.Mount {
	if entries, err := os.ReadDir(file); err == nil {
		var mounts []nshost.Mount
		for _, e := range entries {
			mounts = append(mounts, nshost.Mount{Source: filepath.Join(file, e.Name()), Target: filepath.Join(dir, e.Name()), ReadOnly: true})
		}
		return mounts
	}
	mounts := []nshost.Mount{{Source: file, Target: filepath.Join(dir, "config.yaml"), ReadOnly: true}}
	data, err := os.ReadFile(file)
	var settings map[string]any
	if err != nil || yaml.Unmarshal(data, &settings) != nil {
		return mounts // coracle says on the node what is wrong
	}
	seen := map[string]bool{"config.yaml": true}
	for _, value := range settings {
		name, _ := value.(string)
		if name = filepath.Clean(name); seen[name] || !filepath.IsLocal(name) {
			continue
		}
		source := filepath.Join(filepath.Dir(file), name)
		if info, err := os.Stat(source); err == nil && info.Mode().IsRegular() {
			seen[name] = true
			mounts = append(mounts, nshost.Mount{Source: source, Target: filepath.Join(dir, name), ReadOnly: true})
		}
	}
	return mounts
}
