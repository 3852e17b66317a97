package localcluster

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/quantity"
	"github.com/coracle-dev/coracle/pkg/etcd/rekeyrequest"
)

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

// planNodes adds the nodes of a plan to a cluster's record.
func (m Maker) planNodes(r *Record, p Plan) error {
	if p.From == "" {
		r.plan(p)
		return nil
	}
	one, err := m.Store.LoadSnapshot(p.From)
	if err != nil {
		return err
	}
	if err := r.fork(p, one); err != nil || p.Config != "" {
		return err
	}
	r.Config, err = m.Store.forkConfig(r.Name, one)
	return err
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
	return h.request(one)
}

// request writes the request to rekey the data, which is a copy of another cluster's, for the first server.
func (h *holder) request(one Snapshot) error {
	r := rekeyrequest.Request{CA: one.CA, Addresses: map[netip.Addr]netip.Addr{}, Machines: map[string]string{}}
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

// forkConfig writes the configuration of the snapshot's servers for the servers of the cluster, and returns its path.
func (s Store) forkConfig(name string, one Snapshot) (string, error) {
	if one.Config == "" {
		return "", nil
	}
	file := filepath.Join(s.dir(name), "config.yaml")
	if err := os.MkdirAll(s.dir(name), 0o700); err != nil {
		return "", err
	}
	return file, atomicfile.Write(file, []byte(one.Config), 0o600)
}
