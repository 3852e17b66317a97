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

// fork makes the nodes of a snapshot those of a new cluster. They keep their names, which pods are bound to; more may be
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

// planNodes enters the nodes of a plan into a cluster's record.
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

// Servers is how many of the nodes are servers.
func (one Snapshot) Servers() (n int) {
	for _, node := range one.Nodes {
		if node.Role == Server {
			n++
		}
	}
	return n
}

// restore fills the nodes' disks from the cluster's snapshot, if it was made from one. Files that do not change are shared
// where they can be.
func (k *keeper) restore() error {
	if k.record.From == "" {
		return nil
	}
	one, err := k.store.LoadSnapshot(k.record.From)
	if err != nil {
		return err
	}
	seen := map[uint64]string{}
	for _, n := range one.Nodes {
		for dir, m := range map[string]marks{"data": n.Data, "kubelet": n.Kubelet} {
			c := &clone{from: k.store.snapshot(one.Name, n.Name, dir), to: k.store.host(k.record.Name, n.Name, dir),
				fixed: isFixed, marks: m, put: true, seen: seen}
			if err := c.all(); err != nil {
				return fmt.Errorf("filling the disks of %s from snapshot %s: %w", n.Name, one.Name, err)
			}
		}
	}
	return k.request(one)
}

// request tells the first server that its data is a copy.
func (k *keeper) request(one Snapshot) error {
	r := rekeyrequest.Request{CA: one.CA, Addresses: map[netip.Addr]netip.Addr{}, Machines: map[string]string{}}
	for i, n := range one.Nodes {
		r.Addresses[n.IP] = k.record.Nodes[i].IP
		dirs := paths.Dirs{Data: k.store.host(k.record.Name, n.Name, "data")}
		if err := os.MkdirAll(dirs.NodePKI(), 0o700); err != nil {
			return err
		}
		if _, err := pki.NodeRequest(dirs, n.Name); err != nil { // which makes the key
			return err
		}
		var err error
		if r.Machines[n.Name], err = pki.Identity(dirs); err != nil {
			return err
		}
	}
	dirs := paths.Dirs{Data: k.store.host(k.record.Name, k.record.Nodes[0].Name, "data")}
	if one.Servers() > 1 { // its etcd knows of others, which have no data and join
		if err := atomicfile.Write(dirs.ResetRequest(), fmt.Appendf(nil, "{\"snapshot\": %q}\n", paths.Default().Etcd()), 0o600); err != nil {
			return err
		}
	}
	return r.Write(dirs.Refound())
}

// forkConfig writes the configuration that the snapshot's servers had, for those of the cluster, and returns its path.
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
