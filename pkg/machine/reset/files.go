package reset

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// findFiles lists single files and the pods' logs.
func findFiles(_ context.Context, m *machine) ([]Item, error) {
	var items []Item
	seen := map[string]bool{}
	add := func(kind, path string) {
		if paths.Exists(path) && !seen[path] {
			seen[path] = true
			items = append(items, Item{Kind: kind, Name: path, remove: func(context.Context) error { return m.removeTree(path) }})
		}
	}
	written := func(path string) {
		add("file", path)
		for _, part := range atomicfile.Unfinished(path) {
			add("file", part)
		}
	}
	for _, e := range m.entries(ledger.File) {
		written(m.host(e.Name))
		if n := len(items); e.Name == footprint.LogindConfig && n > 0 && items[n-1].Name == m.host(e.Name) {
			items[n-1].remove = m.removeLogindConfig
		}
	}
	if m.here() {
		written(m.host(m.dirs.CNIConfig()))
		written(cmp.Or(m.config.API.KubeconfigPath, filepath.Join(m.dirs.Config, "kubeconfig.yaml")))
	}
	for _, log := range m.list(footprint.ContainerLogs) {
		if target, err := os.Readlink(log); err == nil && m.ownLog(filepath.Base(filepath.Dir(filepath.Dir(target)))) {
			add("file", log)
		}
	}
	for _, dir := range m.list(footprint.PodLogs) {
		if m.ownLog(filepath.Base(dir)) {
			add("pod's log", dir)
		}
	}
	for _, result := range m.list(footprint.CNIResults) {
		if m.ownResult(result) {
			add("file", result)
		}
	}
	return items, nil
}

// here reports whether coracle has ever run on this machine. If not, files with its names belong to other programs.
func (m *machine) here() bool {
	return paths.Exists(m.dirs.Data) || paths.Exists(m.dirs.Run)
}

// list returns the paths of the entries of a directory of the machine.
func (m *machine) list(dir string) (out []string) {
	files, _ := os.ReadDir(m.host(dir))
	for _, f := range files {
		out = append(out, filepath.Join(m.host(dir), f.Name()))
	}
	return out
}

// ownLog reports whether a log directory, NAMESPACE_NAME_UID, belongs to a pod of coracle.
func (m *machine) ownLog(name string) bool {
	if m.made(ledger.Dir, footprint.PodLogs) {
		return true
	}
	i := strings.LastIndexByte(name, '_')
	if i < 0 {
		return false
	}
	uid := name[i+1:]
	return m.seen.mentions(uid) || m.dirs.Kubelet != "" && paths.Exists(filepath.Join(m.dirs.Kubelet, "pods", uid))
}

// ownResult reports whether a file is libcni's cached result for a pod of coracle.
func (m *machine) ownResult(path string) bool {
	var result struct {
		ContainerID string `json:"containerId"`
	}
	data, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(data, &result) == nil && m.seen.mentions(result.ContainerID)
}

// owned is a directory that coracle uses. entries are what coracle makes in it, for a directory that others use too.
type owned struct {
	dir     string
	entries []string
	usual   string // the default path of the directory: there everything in it is coracle's
}

// ownDirs lists coracle's directories in the order of removal. The data directory with the ledger is the last.
func (m *machine) ownDirs() []owned {
	def := paths.Default()
	return []owned{
		{dir: m.dirs.Run, usual: def.Run, entries: []string{
			"config.json", "lock", "state", "notify.sock", "notify-gateway.sock", "etcd.sock", "policy.sock", "control-plane", "copies", "containerd",
			"runc", "s", "gateway", "subnet.json", "wireguard.key", "images-compared", "payload-compared"}},
		{dir: m.dirs.Kubelet, entries: []string{
			"actuated_pods_state", "allocated_pods_state", "checkpoints", "config", "cpu_manager_state", "device-plugins",
			"dra_manager_state", "image_manager", "memory_manager_state", "pki", "plugins", "plugins_registry",
			"pod-resources", "pod_status_manager_state", "pods", "pods-api", "usernamespaces", "volumeplugins"}},
		{dir: m.dirs.Data, usual: def.Data, entries: []string{
			"bin", "charts", "data", "ephemeral", "images", "kubelet", "ledger.json", "ledger.json.lock", "lock", "log", "manifests",
			"node", "server", "server.before-restore", "server.restoring", "storage", "upgrade"}},
	}
}

// Cache is the kind of the directory that a command like reset may have made itself.
const Cache = "cache"

// findRun lists the run directory, or coracle's entries in it.
func findRun(_ context.Context, m *machine) ([]Item, error) { return m.dirItems(m.ownDirs()[0]), nil }

// findDirs lists the cache, coracle's other directories, and then directories that it made and that are empty.
func findDirs(_ context.Context, m *machine) ([]Item, error) {
	var items []Item
	if _, err := os.Lstat(m.cache); err == nil {
		items = append(items, Item{Kind: Cache, Name: m.cache, remove: func(context.Context) error { return m.removeTree(m.cache) }})
	}
	for _, o := range m.ownDirs()[1:] {
		items = append(items, m.dirItems(o)...)
	}
	made := m.entries(ledger.Dir)
	slices.SortStableFunc(made, func(a, b ledger.Entry) int { return len(b.Name) - len(a.Name) }) // children first
	for _, e := range made {
		if m.isOwnDir(e.Name) || !m.willBeEmpty(m.host(e.Name)) {
			continue
		}
		path := m.host(e.Name)
		items = append(items, Item{Kind: "directory", Name: path, Detail: "if empty", remove: func(context.Context) error {
			err := removed(unix.Rmdir(path))
			if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
				return nil // another program uses it
			}
			return err
		}})
	}
	return items, nil
}

func (m *machine) isOwnDir(path string) bool {
	return path == m.dirs.Run || path == m.dirs.Kubelet || path == m.dirs.Data
}

// willBeEmpty reports whether a directory holds only things that are removed before it, and directories that coracle made
// and that will be empty too.
func (m *machine) willBeEmpty(dir string) bool {
	files, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		made := slices.ContainsFunc(m.noted, func(e ledger.Entry) bool { return e.Kind == ledger.Dir && m.host(e.Name) == path })
		if !m.planned[path] && !(made && m.willBeEmpty(path)) {
			return false
		}
	}
	return true
}

// dirItems returns a directory as one item if it is coracle's, otherwise an item for each of coracle's entries in it.
func (m *machine) dirItems(o owned) []Item {
	if o.dir == "" || resolved(o.dir) == "/" {
		return nil
	}
	if _, err := os.Stat(o.dir); err != nil {
		return nil
	}
	if m.made(ledger.Mount, o.dir) && m.inMemory(o.dir) {
		return []Item{m.memoryItem(o.dir)}
	}
	if m.made(ledger.Mount, o.dir) && !m.made(ledger.Dir, o.dir) {
		return nil // the memory covered it: what is in it is not coracle's
	}
	if (o.dir == o.usual || m.made(ledger.Dir, o.dir)) && !isLink(o.dir) { // a link leads to a user's directory
		if m.isMountPoint(o.dir) && isEmpty(o.dir) {
			return nil
		}
		return []Item{{Kind: "directory", Name: o.dir, remove: func(context.Context) error { return m.removeOwn(o.dir) }}}
	}
	if m.made(ledger.Contents, o.dir) {
		if isEmpty(o.dir) {
			return nil
		}
		return []Item{{Kind: "directory", Name: o.dir, Detail: "what is in it", remove: func(context.Context) error { return m.emptyDir(o.dir) }}}
	}
	var items []Item
	for _, name := range o.entries {
		path := filepath.Join(o.dir, name)
		if info, err := os.Lstat(path); err == nil {
			kind := "file"
			if info.IsDir() {
				kind = "directory"
			}
			items = append(items, Item{Kind: kind, Name: path, remove: func(context.Context) error { return m.removeOwn(path) }})
		}
	}
	return items
}

// removeOwn is removeTree, but keeps the ledger while things in it could not be removed.
func (m *machine) removeOwn(path string) error {
	if m.failed && (path == m.dirs.Ledger() || inside(m.dirs.Ledger(), path)) {
		return fmt.Errorf("kept until all that %s lists is removed: run reset again", m.dirs.Ledger())
	}
	return m.removeTree(path)
}

// removeTree removes a file, a link, or a directory with its content. It leaves mounts inside alone: they hold data that is not
// coracle's.
func (m *machine) removeTree(path string) error {
	path = filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
	points, err := m.mounts()
	if err != nil {
		return err
	}
	below := slices.ContainsFunc(points, func(p string) bool { return inside(p, path) })
	switch {
	case slices.Contains(points, path):
		return m.emptyDir(path)
	case below:
		if err := m.emptyDir(path); err != nil {
			return err
		}
		err := removed(unix.Rmdir(path))
		if errors.Is(err, unix.ENOTEMPTY) {
			return nil // it holds a mount that stays
		}
		return err
	}
	return os.RemoveAll(path)
}

// emptyDir removes the content of a directory that is a mount point or contains some.
func (m *machine) emptyDir(dir string) error {
	dir = resolved(dir)
	files, err := os.ReadDir(dir)
	if err != nil {
		return removed(err)
	}
	points, err := m.mounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		if slices.Contains(points, path) || f.Name() == lostFound {
			continue // a user's mount, because coracle's were unmounted before, or the file system's own
		}
		errs = append(errs, m.removeTree(path))
	}
	return errors.Join(errs...)
}

// isEmpty reports whether a directory has nothing that coracle or a user made.
func isEmpty(dir string) bool {
	files, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(files, func(f os.DirEntry) bool { return f.Name() != lostFound })
}

// lostFound belongs to a file system that is mounted: fsck puts files there that have lost their names.
const lostFound = "lost+found"
