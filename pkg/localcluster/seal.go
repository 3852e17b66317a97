package localcluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// What of a node's disks is sealed: the cluster's data, images and containers, volumes, manifests. All keys, tokens and
// certificates, and what the node remembers of its servers, stay behind.
var (
	sealedData    = []string{etcdData, "node/containerd", "node/images.json", "node/cni", "node/static-pods", "manifests", "storage"}
	sealedKubelet = []string{"pods"}
)

const etcdData = "server/etcd"

// seal makes a snapshot of the cluster. All nodes stand still while it is made, so that it is of one moment.
func (k *keeper) seal(name string) (err error) {
	if !k.sealing.TryLock() {
		return errors.New("another snapshot of this cluster is being made: try again when that is there")
	}
	defer k.sealing.Unlock()
	k.mu.Lock()
	r := k.record
	k.mu.Unlock()
	one := Snapshot{Name: name, Cluster: r.Name, Version: r.Version, Created: time.Now().Round(0)}
	if err := one.read(k.store, r); err != nil {
		return fmt.Errorf("cluster %s cannot be made a snapshot of: %w", r.Name, err)
	}
	temp := k.store.snapshot("." + name + "." + r.Name) // another cluster's may be on its way to the same name
	_ = os.RemoveAll(temp)                              // of one that was interrupted
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return fmt.Errorf("making the snapshot: %w", err)
	}
	defer os.RemoveAll(temp)
	if err := k.settle(r); err != nil {
		return err
	}
	began := time.Now()
	defer func() {
		for _, m := range k.members {
			err = errors.Join(err, m.host.Freeze(false))
		}
	}()
	for _, m := range k.members {
		if err := m.host.Freeze(true); err != nil {
			return fmt.Errorf("stopping %s for a moment: %w", m.node.Name, err)
		}
	}
	seen := map[uint64]string{} // nodes have the files of images in common
	for _, n := range r.Nodes {
		node, copied, err := k.sealNode(n, filepath.Join(temp, n.Name), seen)
		if err != nil {
			return fmt.Errorf("making the snapshot: %w", err)
		}
		one.Nodes = append(one.Nodes, node)
		one.Copied += copied
	}
	one.Paused = time.Since(began)
	if err := one.write(filepath.Join(temp, snapshotFile)); err != nil {
		return err
	}
	return os.Rename(temp, k.store.snapshot(name))
}

// settle makes sure that the log of the first server's etcd, as it is in the file, says of everything that was acknowledged
// that it is valid: etcd keeps that back until the next write. A lone member knows it of itself; of one that had others, what
// comes after is cut off when it is made the only one.
func (k *keeper) settle(r Record) error {
	servers := r.servers()
	if len(servers) < 2 {
		return nil
	}
	cmd := k.member(servers[0].Name).host.Command(coraclePath, "kubectl", "annotate", "--overwrite", "namespace", "kube-system",
		"coracle.io/sealed="+time.Now().UTC().Format(time.RFC3339Nano))
	cmd.Env = k.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("writing to the data of %s before it is copied: %w: %s", servers[0].Name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// read fills in what does not change, and refuses what could not be made another cluster.
func (one *Snapshot) read(s Store, r Record) error {
	if r.Config != "" {
		text, err := os.ReadFile(r.Config)
		if err != nil {
			return err
		}
		one.Config = string(text)
	}
	if err := keyless(one.Config); err != nil {
		return err
	}
	var err error
	one.CA, err = os.ReadFile(filepath.Join(paths.Dirs{Data: s.host(r.Name, r.servers()[0].Name, "data")}.PKI(), "ca.crt"))
	return err
}

// sealNode copies a node's disks.
func (k *keeper) sealNode(n Node, to string, seen map[uint64]string) (SnapshotNode, int64, error) {
	node := SnapshotNode{Name: n.Name, Role: n.Role, IP: n.IP}
	mounted, err := upperDirs(n.PID)
	if err != nil {
		return node, 0, err
	}
	fixed := func(path string) bool { return isFixed(path) && !mounted[layerOf(path)] }
	var copied int64
	for _, part := range []struct {
		dir   string
		names []string
		marks *marks
	}{{"data", sealedData, &node.Data}, {"kubelet", sealedKubelet, &node.Kubelet}} {
		c := &clone{from: k.store.host(k.record.Name, n.Name, part.dir), to: filepath.Join(to, part.dir), fixed: fixed, skip: spare, seen: seen}
		if err := os.MkdirAll(c.to, 0o755); err != nil {
			return node, 0, err
		}
		for _, name := range part.names {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(c.to, name)), 0o755); err != nil {
				return node, 0, err
			}
			if name == etcdData && n.Name != k.record.servers()[0].Name {
				continue // the other servers get it from the first one
			}
			if err := c.run(name); err != nil {
				return node, 0, err
			}
		}
		*part.marks = c.marks
		copied += c.bytes
	}
	if n.Name == k.record.servers()[0].Name {
		err = sealSettings(paths.Dirs{Data: k.store.host(k.record.Name, n.Name, "data")}, paths.Dirs{Data: filepath.Join(to, "data")})
	}
	return node, copied, err
}

// sealSettings keeps of what a server remembers of its cluster the settings only.
func sealSettings(from, to paths.Dirs) error {
	m, err := join.Recall(from.ServerCluster())
	if err != nil {
		return err
	}
	settings := config.ClusterSettings{}
	for name := range config.Fixed() {
		settings[name] = m.Settings[name]
	}
	data, err := json.Marshal(join.Memory{Cluster: join.Cluster{Settings: settings}})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to.ServerCluster()), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteVolatile(to.ServerCluster(), data, 0o600)
}

// layers is where containerd's layers are: those of images, and what containers write.
var layers = regexp.MustCompile(`^node/containerd/io\.containerd\.snapshotter\.v1\.overlayfs/snapshots/[0-9]+/fs`)

const blobs = "node/containerd/io.containerd.content.v1.content/blobs/"

// isFixed reports whether a file does not change once it is there: an image's content, and its layers.
func isFixed(path string) bool { return strings.HasPrefix(path, blobs) || layers.MatchString(path) }

// layerOf is the layer that a file belongs to, below the data directory; "" for none.
func layerOf(path string) string { return layers.FindString(path) }

// spare is what a start makes anew: etcd's log makes room ahead.
func spare(path string) bool {
	return strings.HasPrefix(path, "server/etcd/") && strings.HasSuffix(path, ".tmp")
}

// upperDirs are the layers that containers write to, as a node's mount table has them.
func upperDirs(pid int) (map[string]bool, error) {
	tables, err := mountTables(pid)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, found := range upper.FindAllStringSubmatch(tables, -1) {
		out[strings.TrimPrefix(found[1], paths.Default().Data+"/")] = true
	}
	return out, nil
}

var upper = regexp.MustCompile(`upperdir=([^,\s]+)`)

// mountTables are those of a node: containers' root directories are mounted by containerd and seen there.
func mountTables(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("node with process %d is down", pid)
	}
	return string(data), err
}
