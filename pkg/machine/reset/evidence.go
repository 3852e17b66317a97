package reset

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// evidence is what coracle's own directories tell of things outside them.
type evidence struct {
	// database is containerd's, as bytes: whoever is mentioned in it is ours, without needing it to be whole or to
	// be of a form that this version knows. Names that are searched for hold a UUID or a digest.
	database []byte
	bundles  []bundle
	network  string // name of the CNI network
}

// bundle is a container as its shim was told to run it.
type bundle struct {
	id     string
	cgroup string
	netns  string
	pod    string // namespace/name
}

func gather(dirs paths.Dirs) evidence {
	var e evidence
	e.database, _ = os.ReadFile(filepath.Join(dirs.Containerd(), "io.containerd.metadata.v1.bolt", "meta.db"))
	specs, _ := filepath.Glob(filepath.Join(dirs.ContainerdState(), "io.containerd.runtime.v2.task", "*", "*", "config.json"))
	for _, spec := range specs {
		if b, ok := readBundle(spec); ok {
			e.bundles = append(e.bundles, b)
		}
	}
	var list struct {
		Name string `json:"name"`
	}
	if data, err := os.ReadFile(dirs.CNIConfig()); err == nil && json.Unmarshal(data, &list) == nil {
		e.network = list.Name
	}
	return e
}

// readBundle reads the parts of an OCI runtime specification that reset needs. A damaged one is left out.
func readBundle(path string) (bundle, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return bundle{}, false
	}
	var spec struct {
		Annotations map[string]string `json:"annotations"`
		Linux       struct {
			CgroupsPath string `json:"cgroupsPath"`
			Namespaces  []struct {
				Type, Path string
			} `json:"namespaces"`
		} `json:"linux"`
	}
	if json.Unmarshal(data, &spec) != nil {
		return bundle{}, false
	}
	b := bundle{id: filepath.Base(filepath.Dir(path)), cgroup: topCgroup(spec.Linux.CgroupsPath)}
	if name := spec.Annotations["io.kubernetes.cri.sandbox-name"]; name != "" {
		b.pod = spec.Annotations["io.kubernetes.cri.sandbox-namespace"] + "/" + name
	}
	for _, n := range spec.Linux.Namespaces {
		if n.Type == "network" && strings.Contains(n.Path, "/netns/") {
			b.netns = filepath.Base(n.Path)
		}
	}
	return b, true
}

// topCgroup is the kubelet's own cgroup out of a container's, by the file system's or systemd's way of naming:
// /kubepods/burstable/pod1/2, kubepods-burstable-pod1.slice:cri-containerd:2. It is "" for what is none of the kubelet's.
func topCgroup(path string) string {
	if slice, _, ok := strings.Cut(path, ".slice:"); ok {
		path = "/" + strings.SplitN(slice, "-", 2)[0] + ".slice"
	}
	parts := strings.Split(path, "/")
	i := slices.IndexFunc(parts, func(part string) bool { return strings.HasPrefix(part, "kubepods") })
	if i < 0 {
		return ""
	}
	return strings.Join(parts[:i+1], "/")
}

// mentions reports whether containerd's database or a bundle knows the name. Short names prove nothing.
func (e evidence) mentions(name string) bool {
	const shortest = 32
	if len(name) < shortest {
		return false
	}
	for _, b := range e.bundles {
		if b.id == name || b.netns == name {
			return true
		}
	}
	return bytes.Contains(e.database, []byte(name))
}

var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// ids are all identifiers in the database that may be of containers.
func (e evidence) ids() map[string]bool {
	out := map[string]bool{}
	for _, b := range e.bundles {
		out[b.id] = true
	}
	for _, id := range containerID.FindAll(e.database, -1) {
		out[string(id)] = true
	}
	return out
}
