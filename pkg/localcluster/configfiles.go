package localcluster

import (
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// configMounts binds the servers' configuration into a node's directory, with what coracle server --config reads beside it: drop-ins, the directories
// of the kubelet's and containerd's, and the files and directories that it names by a relative path. Of a directory all files are there. The node's
// directory stays its own, since coracle writes the kubeconfig there.
func configMounts(file, dir string) []nshost.Mount {
	if entries, err := os.ReadDir(file); err == nil {
		var mounts []nshost.Mount
		for _, e := range entries {
			mounts = append(mounts, nshost.Mount{Source: filepath.Join(file, e.Name()), Target: filepath.Join(dir, e.Name()), ReadOnly: true})
		}
		return mounts
	}
	mounts := []nshost.Mount{{Source: file, Target: filepath.Join(dir, "config.yaml"), ReadOnly: true}}
	seen := map[string]bool{"config.yaml": true}
	bind := func(source, name string, directory bool) {
		info, err := os.Stat(source)
		if err != nil || info.IsDir() != directory || !directory && !info.Mode().IsRegular() || seen[name] {
			return
		}
		seen[name] = true
		mounts = append(mounts, nshost.Mount{Source: source, Target: filepath.Join(dir, name), ReadOnly: true})
	}
	beside := func(name string) string { return filepath.Join(filepath.Dir(file), name) }
	bind(file+".d", "config.yaml.d", true)
	bind(beside("kubelet.d"), "kubelet.d", true)
	bind(beside("containerd.d"), "containerd.d", true)
	data, err := os.ReadFile(file)
	var settings map[string]any
	if err != nil || yaml.Unmarshal(data, &settings) != nil {
		return mounts // coracle says on the node what is wrong
	}
	for key, value := range settings {
		name, _ := value.(string)
		if name = filepath.Clean(name); name != "." && filepath.IsLocal(name) {
			bind(beside(name), name, strings.HasSuffix(key, readDirSuffix))
		}
	}
	return mounts
}

// readDirSuffix ends the names of the settings for a directory that coracle only reads. Those that it writes to are each node's own.
const readDirSuffix = "-config-dir"
