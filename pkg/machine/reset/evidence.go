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

// evidence is what coracle's own directories say about things outside them.
type evidence struct {
	// database is the content of containerd's database. A thing whose name is in it is coracle's. It is searched as bytes, as
	// it may be damaged or in a format of another version; the names have a UUID or a digest in them, so no other matches.
	database   []byte
	containers []container
	network    string // name of the CNI network
}

// container is what the OCI runtime specification of a container says.
type container struct {
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
		if b, ok := readContainer(spec); ok {
			e.containers = append(e.containers, b)
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

// readContainer reads what reset needs from an OCI runtime specification. It returns false if that cannot be read.
func readContainer(path string) (container, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return container{}, false
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
		return container{}, false
	}
	b := container{id: filepath.Base(filepath.Dir(path)), cgroup: topCgroup(spec.Linux.CgroupsPath)}
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

// topCgroup returns the kubelet's top cgroup from the path of a container's cgroup, which has the form of the cgroupfs driver
// or of the systemd driver: /kubepods/burstable/pod1/2, kubepods-burstable-pod1.slice:cri-containerd:2. It is "" for a cgroup
// that is not the kubelet's.
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

// mentions reports whether containerd's database or a container's specification has the name. Short names are not unique
// enough and never match.
func (e evidence) mentions(name string) bool {
	const shortest = 32
	if len(name) < shortest {
		return false
	}
	inSpec := slices.ContainsFunc(e.containers, func(c container) bool { return c.id == name || c.netns == name })
	return inSpec || bytes.Contains(e.database, []byte(name))
}

var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// ids returns all identifiers that may be those of containers.
func (e evidence) ids() map[string]bool {
	out := map[string]bool{}
	for _, b := range e.containers {
		out[b.id] = true
	}
	for _, id := range containerID.FindAll(e.database, -1) {
		out[string(id)] = true
	}
	return out
}
