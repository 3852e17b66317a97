package join

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Memory is a machine's file about its cluster, for a start without a server. Package config reads the settings in it.
type Memory struct {
	Cluster
	// Joined says that other machines are or were servers of the cluster; see config.Join.
	Joined bool `json:"joined"`
	// Joining is the URL of the server that is being joined, while the cluster's keys are being written. A machine that was
	// interrupted then has some keys of a cluster of which it is not a member yet.
	Joining string `json:"entering,omitempty"`
	// Former are the hashes of authorities that the CA has replaced: a token that was printed before names one of them.
	Former []string `json:"former,omitempty"`
}

// follow takes over what a server has sent.
func (m *Memory) follow(c Cluster) {
	m.trust(c.CA)
	m.Cluster = c
}

// trust replaces the CA. It keeps the hashes of those authorities that the new bundle lacks.
func (m *Memory) trust(bundle []byte) {
	former := pki.ParseCerts(m.CA)
	m.CA = bundle
	for _, one := range former {
		m.accept(pki.Fingerprint(one))
	}
}

// accept keeps a hash that tokens for the cluster may have.
func (m *Memory) accept(pin string) {
	if !m.accepts(pin) {
		m.Former = append(m.Former, pin)
	}
}

// accepts reports whether a token with a hash is for the cluster. One without a hash fits every cluster.
func (m *Memory) accepts(pin string) bool {
	return pin == "" || slices.Contains(m.Former, pin) || len(pinned(pki.ParseCerts(m.CA), pin)) > 0
}

// LoadMemory reads a memory. It is empty if the file does not exist.
func LoadMemory(file string) (m Memory, err error) {
	if _, err := atomicfile.ReadJSON(file, &m); err != nil {
		return Memory{}, fmt.Errorf("the stored settings of the cluster are damaged: %w", err)
	}
	return m, nil
}

// Remembered returns what a server has recorded about its cluster. Joined is also true if another machine has joined since the front started.
func Remembered(cfg config.Config) Memory {
	joined := paths.Exists(cfg.Dirs.Joined())         // before the memory, since the front removes the mark when the memory has it
	memory, _ := LoadMemory(cfg.Dirs.ServerCluster()) // the front has reported a damaged file
	memory.Joined = memory.Joined || joined
	return memory
}

// Alone reports whether the cluster has never had another server, as far as this server has recorded it.
func Alone(cfg config.Config) bool {
	return !cfg.Datastore.External() && !cfg.Join.Joined && !Remembered(cfg).Joined
}

// known returns the memory as package config needs it. from is the server that has just sent it, "" if it was stored.
func (m Memory) known(from string) config.Known {
	return config.Known{Settings: m.Settings, Servers: m.Servers, Joined: m.Joined, From: from}
}

// Save writes the memory and syncs it to disk. It may contain secrets.
func (m Memory) Save(file string) error { return atomicfile.WriteJSON(file, m, 0o600) }

// MarkJoined records that the cluster has another server. From then on this one must not start a cluster of its own, and takes its
// settings from the cluster.
func MarkJoined(file string) error {
	m, err := LoadMemory(file)
	if err != nil || m.Joined {
		return err
	}
	m.Joined = true
	return m.Save(file)
}

// KeepSettings saves the settings of the server that begins a cluster, and refuses to change the fixed ones once the cluster
// has data: its objects have addresses from the CIDRs, and its tokens name the domain. Errors name the flag, both values
// and what to do. It must be called before anything uses the settings, and can be interrupted at any point. Data of an
// earlier coracle that saved nothing counts as made with the present settings.
func KeepSettings(cfg config.Config) error {
	if cfg.Role != config.Server {
		return nil
	}
	file := cfg.Dirs.ServerCluster()
	made, err := HasData(cfg)
	if err != nil {
		return err
	}
	var memory Memory
	if made {
		if memory, err = LoadMemory(file); err != nil {
			return fmt.Errorf("%w: remove the file and start with the settings that the cluster was made with, which writes it again; with --hardened, "+
				"unless the cluster began with an earlier version", err)
		}
		if memory.Settings == nil && !cfg.Security.Strict() {
			logrus.Warnf("the stored settings of the cluster, %s, are missing: the server starts without the hardened defaults of new clusters; if the cluster had them, restart it with --hardened", file)
		}
	}
	settings, err := cfg.Shared()
	if err != nil {
		return err
	}
	if err := checkFixed(memory.Settings, settings); err != nil {
		return err
	}
	memory.Settings = settings
	return memory.Save(file)
}

// checkFixed reports the fixed settings that differ from those that the cluster was made with.
func checkFixed(kept, settings config.ClusterSettings) error {
	heldBy := config.Fixed()
	var wrong []error
	for _, flag := range slices.Sorted(maps.Keys(heldBy)) {
		if old, ok := kept[flag]; ok && old != settings[flag] {
			wrong = append(wrong, fmt.Errorf("--%s is %s, but this cluster was made with %s, and its %s: "+
				"put %[3]s back, or end the cluster with coracle reset and begin a new one", flag, settings[flag], old, heldBy[flag]))
		}
	}
	return errors.Join(wrong...)
}

// HasData reports whether this server has, or had in an external datastore, data of a cluster.
func HasData(cfg config.Config) (bool, error) {
	if cfg.Datastore.External() {
		_, err := os.Stat(cfg.Dirs.ServerCluster())
		return err == nil, nil
	}
	_, err := os.Stat(filepath.Join(cfg.Dirs.Etcd(), "member")) // etcd makes it at its first start
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking for the cluster's data: %w", err)
	}
	return err == nil, nil
}
