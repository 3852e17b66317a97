package localcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// The content of a snapshot: the cluster's data, images and containers, volumes, manifests. Keys (but that of the Secrets in the data), tokens,
// certificates and the list of servers are not in it.
var (
	snapshotData    = []string{etcdData, "node/containerd", "node/images.json", "node/cni", "node/static-pods", "manifests", "storage"}
	snapshotKubelet = []string{"pods"}
)

const etcdData = "server/etcd"

// takeSnapshot takes a snapshot of the cluster. All nodes are frozen meanwhile, so that their disks are of the same moment.
func (h *holder) takeSnapshot(o order) (err error) {
	name := o.To
	if !h.snapshotting.TryLock() {
		return errors.New("another snapshot of this cluster is being taken: try again when it is complete")
	}
	defer h.snapshotting.Unlock()
	h.mu.Lock()
	r := h.record
	h.mu.Unlock()
	one := Snapshot{Name: name, Cluster: r.Name, Version: r.Version, Created: time.Now().Round(0)}
	if o.Owned {
		one.Owner = r.Owner
	}
	if err := one.read(h.store, r); err != nil {
		return fmt.Errorf("a snapshot of cluster %s cannot be taken: %w", r.Name, err)
	}
	_ = h.store.removeParts(func(cluster string) bool { return cluster == r.Name }) // of an earlier holder, which was killed
	temp := h.store.snapshot(partOf(name, r.Name))
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return fmt.Errorf("taking the snapshot: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := h.flushEtcd(r); err != nil {
		return err
	}
	began := time.Now()
	defer func() {
		for _, m := range h.members {
			err = errors.Join(err, m.host.Freeze(false))
		}
	}()
	for _, m := range h.members {
		if err := m.host.Freeze(true); err != nil {
			return fmt.Errorf("freezing %s: %w", m.node.Name, err)
		}
	}
	seen := map[uint64]string{} // nodes share the files of images
	for _, n := range r.Nodes {
		node, copied, err := h.snapshotNode(n, filepath.Join(temp, n.Name), seen)
		if err != nil {
			return fmt.Errorf("taking the snapshot: %w", err)
		}
		one.Nodes = append(one.Nodes, node)
		one.Copied += copied
	}
	one.Paused = time.Since(began)
	seals, err := pki.SealKeys(paths.Dirs{Data: h.store.host(r.Name, r.servers()[0].Name, "data")}, pki.SealSecrets)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(temp, sealFile), seals[0].Key[:], 0o600); err != nil {
		return err
	}
	if err := one.write(filepath.Join(temp, snapshotFile)); err != nil {
		return err
	}
	return os.Rename(temp, h.store.snapshot(name))
}

// flushEtcd makes the first server's etcd write its commit index to its log by one more write: etcd persists the index with the next
// entry only, and entries behind it are cut off when the member becomes the only one. A lone member does not need that.
func (h *holder) flushEtcd(r Record) error {
	servers := r.servers()
	if len(servers) < 2 {
		return nil
	}
	cmd := h.member(servers[0].Name).host.Command(coraclePath, "kubectl", "annotate", "--overwrite", "namespace", "kube-system",
		"coracle.io/sealed="+time.Now().UTC().Format(time.RFC3339Nano))
	cmd.Env = h.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("writing to the data of %s before it is copied: %w: %s", servers[0].Name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// read fills in the configuration and the CA, and refuses a cluster from which no other could be made.
func (one *Snapshot) read(s Store, r Record) error {
	if info, err := os.Stat(r.Config); err == nil && info.IsDir() {
		return fmt.Errorf("the cluster's configuration is the directory %s, and a snapshot keeps one file: make the cluster with a file for --config", r.Config)
	}
	if r.Config != "" {
		if more := configMounts(r.Config, "/"); len(more) > 1 {
			return fmt.Errorf("the cluster's configuration uses %s as well, and a snapshot keeps one file: make the cluster without it", more[1].Source)
		}
		text, err := os.ReadFile(r.Config)
		if err != nil {
			return err
		}
		one.Config = string(text)
	}
	if err := checkKeyless(one.Config); err != nil {
		return err
	}
	dirs := paths.Dirs{Data: s.host(r.Name, r.servers()[0].Name, "data")}
	var err error
	one.CA, err = pki.OwnCA(dirs)
	return err
}

// snapshotNode copies the disks of a node.
func (h *holder) snapshotNode(n Node, to string, seen map[uint64]string) (SnapshotNode, int64, error) {
	node := SnapshotNode{Name: n.Name, Role: n.Role, IP: n.IP}
	mounted, err := upperDirs(n.PID)
	if err != nil {
		return node, 0, err
	}
	fixed := func(path string) bool { return isImmutable(path) && !mounted[layers.FindString(path)] }
	var copied int64
	for _, part := range []struct {
		dir   string
		names []string
		marks *marks
	}{{"data", snapshotData, &node.Data}, {"kubelet", snapshotKubelet, &node.Kubelet}} {
		c := &clone{from: h.store.host(h.record.Name, n.Name, part.dir), to: filepath.Join(to, part.dir), fixed: fixed, skip: isPreallocated, seen: seen}
		if err := os.MkdirAll(c.to, 0o755); err != nil {
			return node, 0, err
		}
		for _, name := range part.names {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(c.to, name)), 0o755); err != nil {
				return node, 0, err
			}
			if name == etcdData && n.Name != h.record.servers()[0].Name {
				continue // the other servers get the data from the first one
			}
			if err := c.run(name); err != nil {
				return node, 0, err
			}
		}
		*part.marks = c.marks
		copied += c.bytes
	}
	if n.Name == h.record.servers()[0].Name {
		err = snapshotSettings(paths.Dirs{Data: h.store.host(h.record.Name, n.Name, "data")}, paths.Dirs{Data: filepath.Join(to, "data")})
	}
	return node, copied, err
}

// snapshotSettings copies the settings that a cluster keeps from its begin out of a server's memory of its cluster.
func snapshotSettings(from, to paths.Dirs) error {
	m, err := join.LoadMemory(from.ServerCluster())
	if err != nil {
		return err
	}
	settings := config.ClusterSettings{}
	for name := range config.Fixed() {
		settings[name] = m.Settings[name]
	}
	if value, ok := m.Settings[config.HardenedKey]; ok {
		settings[config.HardenedKey] = value
	}
	return join.Memory{Cluster: join.Cluster{Settings: settings}}.Save(to.ServerCluster())
}

// layers matches the directories of containerd's layers: those of images, and the writable ones of containers.
var layers = regexp.MustCompile(`^node/containerd/io\.containerd\.snapshotter\.v1\.overlayfs/snapshots/[0-9]+/fs`)

const blobs = "node/containerd/io.containerd.content.v1.content/blobs/"

// isImmutable reports whether a file is part of an image's content or layers, which never change in place.
func isImmutable(path string) bool { return strings.HasPrefix(path, blobs) || layers.MatchString(path) }

// isPreallocated reports whether a file is one of the empty log files that etcd preallocates at each start.
func isPreallocated(path string) bool {
	return strings.HasPrefix(path, "server/etcd/") && strings.HasSuffix(path, ".tmp")
}

// upperDirs returns the writable layers of running containers, relative to the data directory, from a node's mount table.
func upperDirs(pid int) (map[string]bool, error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("node with process %d is down", pid)
	}
	out := map[string]bool{}
	for _, found := range upper.FindAllSubmatch(table, -1) {
		out[strings.TrimPrefix(string(found[1]), paths.Default().Data+"/")] = true
	}
	return out, err
}

var upper = regexp.MustCompile(`upperdir=([^,\s]+)`)
