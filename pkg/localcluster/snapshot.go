package localcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/etcd/rekeyrequest"
)

// Snapshot is the content of all nodes' disks at one moment, without keys of machines and authorities.
type Snapshot struct {
	Name    string    `json:"name"`
	Cluster string    `json:"cluster"` // from which it was taken
	Version string    `json:"version"` // of coracle
	Created time.Time `json:"created"`
	// CA is the certificate of the cluster's CA.
	CA    []byte         `json:"ca"`
	Nodes []SnapshotNode `json:"nodes"`
	// Config is the content of the servers' configuration file; "" for none.
	Config string `json:"config,omitempty"`
	// Paused is how long the nodes were frozen.
	Paused time.Duration `json:"paused"`
	// Copied is the number of bytes that were copied rather than hard-linked.
	Copied int64 `json:"copied"`
	// Owner is the process with whose end the snapshot is removed, none for one that stays.
	Owner Process `json:"owner,omitzero"`
}

// SnapshotNode is a node of a snapshot.
type SnapshotNode struct {
	Name string     `json:"name"`
	Role string     `json:"role"`
	IP   netip.Addr `json:"ip"`
	// Data and Kubelet are the overlayfs marks in the two directories.
	Data    marks `json:"data"`
	Kubelet marks `json:"kubelet"`
}

// SnapshotCluster takes a snapshot of a running cluster. Its nodes are frozen meanwhile.
func (s Store) SnapshotCluster(cluster, to string) (Snapshot, error) {
	return s.snapshotCluster(cluster, to, false)
}

// snapshotCluster takes a snapshot, which is removed with the cluster's owner if it is owned.
func (s Store) snapshotCluster(cluster, to string, owned bool) (Snapshot, error) {
	if !validName.MatchString(to) {
		return Snapshot{}, fmt.Errorf("the snapshot's name %q must consist of lower-case letters, digits and dashes, at most 40, and begin with a letter", to)
	}
	r, err := s.Load(cluster)
	switch {
	case err != nil:
		return Snapshot{}, err
	case paths.Exists(s.snapshot(to)):
		return Snapshot{}, fmt.Errorf("there is a snapshot %s already; remove it with coracle snapshot-cluster rm %s, or choose another name with --to", to, to)
	}
	for _, n := range r.Nodes {
		if n.PID == 0 {
			return Snapshot{}, fmt.Errorf("node %s is down: start it with coracle up node start %s %[1]s", n.Name, cluster)
		}
	}
	if err := s.ask(r, order{Do: orderSnapshot, To: to, Owned: owned}); err != nil {
		return Snapshot{}, err
	}
	return s.LoadSnapshot(to)
}

// orderSnapshot makes the holder take a snapshot with the name in order.To.
const orderSnapshot = "seal"

// checkKeyless refuses a configuration with keys or tokens that a new cluster must not share, or with data outside the cluster.
func checkKeyless(config string) error {
	var settings map[string]any
	if err := yaml.Unmarshal([]byte(config), &settings); err != nil {
		return fmt.Errorf("reading its configuration: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		switch key {
		case "encryption-provider-config":
			return errors.New("its Secrets are encrypted with a key that another cluster must not share (encryption-provider-config)")
		case "token", "agent-token", "token-file", "agent-token-file", "datastore-endpoint":
			return fmt.Errorf("its configuration has %s, which another cluster must not share", key)
		}
	}
	return nil
}

func (one Snapshot) write(file string) error { return atomicfile.WriteJSON(file, one, 0o600) }

// fork plans the nodes of a cluster that starts from a snapshot. They keep their names, because pods are bound to them. Agents can be
// added.
func (r *Record) fork(p Plan, from Snapshot) error {
	if p.Nodes < len(from.Nodes) || p.Servers != from.Servers() {
		return fmt.Errorf("snapshot %s is of %s with %s: a cluster from it has as many servers, and as many nodes or more",
			from.Name, quantity.Count(len(from.Nodes), "node", "nodes"), quantity.Count(from.Servers(), "server", "servers"))
	}
	p.Name = from.Cluster
	added := Record{Network: r.Network}
	added.plan(p)
	r.Nodes = added.Nodes
	for i, n := range from.Nodes {
		r.Nodes[i].Name, r.Nodes[i].Role = n.Name, n.Role
	}
	for i := range r.Nodes {
		r.Nodes[i].Cgroup = filepath.Join(r.Cgroup(), r.Nodes[i].Name)
	}
	return nil
}

// planNodes adds the nodes of a plan to a cluster's record. It returns the configuration for the file that the record then names, if it is a snapshot's.
func (m Maker) planNodes(r *Record, p Plan) (config string, err error) {
	if p.From == "" {
		r.plan(p)
		return "", nil
	}
	one, err := m.Store.LoadSnapshot(p.From)
	if err != nil {
		return "", err
	}
	if err := r.fork(p, one); err != nil || p.Config != "" || one.Config == "" {
		return "", err
	}
	r.Config = filepath.Join(m.Store.dir(r.Name), "config.yaml")
	return one.Config, nil
}

// Servers returns the number of servers.
func (one Snapshot) Servers() (n int) {
	for _, node := range one.Nodes {
		if node.Role == Server {
			n++
		}
	}
	return n
}

// restore fills the nodes' disks from the snapshot, if the cluster starts from one. Immutable files are hard-linked where possible.
func (h *holder) restore() error {
	if h.record.From == "" {
		return nil
	}
	one, err := h.store.LoadSnapshot(h.record.From)
	if err != nil {
		return err
	}
	seen := map[uint64]string{}
	for _, n := range one.Nodes {
		for dir, m := range map[string]marks{"data": n.Data, "kubelet": n.Kubelet} {
			c := &clone{from: h.store.snapshot(one.Name, n.Name, dir), to: h.store.host(h.record.Name, n.Name, dir),
				fixed: isImmutable, marks: m, put: true, seen: seen}
			if err := c.all(); err != nil {
				return fmt.Errorf("filling the disks of %s from snapshot %s: %w", n.Name, one.Name, err)
			}
		}
	}
	return h.requestRekey(one)
}

// requestRekey requests new keys for the data of the first server, which is a copy of another cluster's.
func (h *holder) requestRekey(one Snapshot) error {
	seal, err := os.ReadFile(h.store.snapshot(one.Name, sealFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r := rekeyrequest.Request{CA: one.CA, Seal: seal, Addresses: map[netip.Addr]netip.Addr{}, Machines: map[string]string{}}
	for i, n := range one.Nodes {
		r.Addresses[n.IP] = h.record.Nodes[i].IP
		dirs := paths.Dirs{Data: h.store.host(h.record.Name, n.Name, "data")}
		if err := os.MkdirAll(dirs.NodePKI(), 0o700); err != nil {
			return err
		}
		if _, err := pki.NodeRequest(dirs, n.Name); err != nil { // makes the key
			return err
		}
		var err error
		if r.Machines[n.Name], err = pki.Identity(dirs); err != nil {
			return err
		}
	}
	dirs := paths.Dirs{Data: h.store.host(h.record.Name, h.record.Nodes[0].Name, "data")}
	if one.Servers() > 1 { // its etcd lists others, which have no data and join again
		if err := atomicfile.Write(dirs.ResetRequest(), fmt.Appendf(nil, "{\"snapshot\": %q}\n", paths.Default().Etcd()), 0o600); err != nil {
			return err
		}
	}
	return r.Write(dirs.RekeyRequest())
}
