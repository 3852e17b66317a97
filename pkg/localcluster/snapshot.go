package localcluster

import (
	"context"
	"encoding/json"
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

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Snapshot is a sealed state of a cluster: what its nodes had on their disks at one moment, without any key.
type Snapshot struct {
	Name    string    `json:"name"`
	Cluster string    `json:"cluster"` // that it was made of
	Version string    `json:"version"` // of coracle
	Created time.Time `json:"created"`
	// CA is the certificate of the cluster's authority.
	CA    []byte         `json:"ca"`
	Nodes []SnapshotNode `json:"nodes"`
	// Config is the configuration of the servers, its content; "" for none.
	Config string `json:"config,omitempty"`
	// Paused is for how long the cluster stood still while it was made.
	Paused time.Duration `json:"paused"`
	// Copied is how many bytes were copied for it; what does not change is shared with the cluster where it can be.
	Copied int64 `json:"copied"`
}

// SnapshotNode is a node of a snapshot.
type SnapshotNode struct {
	Name string     `json:"name"`
	Role string     `json:"role"`
	IP   netip.Addr `json:"ip"`
	// Data and Kubelet are overlayfs' marks in the two directories.
	Data    marks `json:"data"`
	Kubelet marks `json:"kubelet"`
}

// snapshotsDir is beside the clusters' directories; it is no name that a cluster could have.
const snapshotsDir = ".snapshots"

func (s Store) snapshots() string { return filepath.Join(s.Dir, snapshotsDir) }

func (s Store) snapshot(name string, elem ...string) string {
	return filepath.Join(append([]string{s.snapshots(), name}, elem...)...)
}

const snapshotFile = "snapshot.json"

// Snapshots lists them, the oldest first.
func (s Store) Snapshots() ([]Snapshot, error) {
	entries, err := os.ReadDir(s.snapshots())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := []Snapshot{}
	for _, e := range entries {
		if !validName.MatchString(e.Name()) {
			continue // one that is being made
		}
		one, err := s.LoadSnapshot(e.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Snapshot) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// LoadSnapshot reads what is known of one.
func (s Store) LoadSnapshot(name string) (Snapshot, error) {
	var one Snapshot
	data, err := os.ReadFile(s.snapshot(name, snapshotFile))
	if errors.Is(err, fs.ErrNotExist) || !validName.MatchString(name) {
		return one, fmt.Errorf("there is no snapshot %s; coracle snapshot-cluster list shows which there are", name)
	}
	if err == nil {
		err = json.Unmarshal(data, &one)
	}
	if err != nil {
		return one, fmt.Errorf("reading snapshot %s: %w", name, err)
	}
	return one, nil
}

// RemoveSnapshot removes one. Clusters that were made from it are not touched.
func (s Store) RemoveSnapshot(ctx context.Context, name string) error {
	if _, err := s.LoadSnapshot(name); err != nil {
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.RemoveAll(s.snapshot(name)); err != nil {
		return fmt.Errorf("removing snapshot %s: %w", name, err)
	}
	_ = os.Remove(s.snapshots()) // unless it holds others
	s.tidy()
	return nil
}

// SnapshotCluster makes a snapshot of a running cluster, which stands still meanwhile and then goes on.
func (s Store) SnapshotCluster(cluster, to string) (Snapshot, error) {
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
	if err := s.ask(r, order{Do: orderSeal, To: to}); err != nil {
		return Snapshot{}, err
	}
	return s.LoadSnapshot(to)
}

// orderSeal makes the keeper seal the cluster's state as the snapshot that the order names.
const orderSeal = "seal"

// keyless refuses a configuration that makes data which only its key can read, or that is not the cluster's alone.
func keyless(config string) error {
	var settings map[string]any
	if err := yaml.Unmarshal([]byte(config), &settings); err != nil {
		return fmt.Errorf("reading its configuration: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		switch key {
		case "encryption-provider-config":
			return errors.New("its Secrets are encrypted with a key that another cluster must not have (encryption-provider-config)")
		case "token", "agent-token", "token-file", "agent-token-file", "datastore-endpoint":
			return fmt.Errorf("its configuration has %s, which another cluster must not share", key)
		}
	}
	return nil
}

func (one Snapshot) write(file string) error {
	data, err := json.MarshalIndent(one, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, data, 0o600)
}
