// Package clustersettings remembers the settings that are part of a cluster's data, so that a later start cannot
// change them by mistake: objects hold addresses out of the CIDRs, and tokens name the domain.
package clustersettings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/atomicfile"
	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/paths"
)

// setting is one row: the flag, what it says now, and what in the cluster depends on it.
type setting struct {
	flag, value string
	heldBy      string
}

func settings(n config.Network) []setting {
	return []setting{
		{"cluster-cidr", list(n.ClusterCIDRs), "nodes and pods have addresses of it"},
		{"service-cidr", list(n.ServiceCIDRs), "Services have addresses of it"},
		{"cluster-domain", n.Domain, "tokens and pods hold names in it"},
	}
}

// list is a value as the flag takes it. The order counts: the first family is the preferred one.
func list(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, ",")
}

// Keep remembers a server's settings before its cluster is made, and refuses others once it is. Errors name the flag,
// both values and the ways out. It belongs before everything that uses the settings, and can be interrupted at any
// point. Data that an earlier coracle left without remembering is taken to have been made with these settings.
func Keep(cfg config.Config) error {
	if cfg.Role != config.Server {
		return nil
	}
	file := cfg.Dirs.ServerCluster()
	made, err := clusterMade(cfg.Dirs)
	if err != nil {
		return err
	}
	kept := map[string]string{}
	if made { // until then there is nothing to which settings could be wrong
		if kept, err = read(file); err != nil {
			return err
		}
	}
	var changed []error
	for _, s := range settings(cfg.Network) {
		old, ok := kept[s.flag]
		if ok && old != s.value {
			changed = append(changed, fmt.Errorf("--%s is %s, but this cluster was made with %s, and its %s: "+
				"put %[3]s back, or end the cluster with coracle reset and begin a new one", s.flag, s.value, old, s.heldBy))
		}
		kept[s.flag] = s.value
	}
	if len(changed) > 0 {
		return errors.Join(changed...)
	}
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the cluster's settings: %w", err)
	}
	_, err = atomicfile.WriteIfChanged(file, append(data, '\n'), 0o600)
	return err
}

// clusterMade reports whether etcd has run: from then on there may be objects.
func clusterMade(dirs paths.Dirs) (bool, error) {
	_, err := os.Stat(filepath.Join(dirs.Etcd(), "member"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking for the cluster's data: %w", err)
	}
	return err == nil, nil
}

// read returns the values that were remembered, by flag.
func read(file string) (map[string]string, error) {
	kept := map[string]string{}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's settings: %w", err)
	}
	if err := json.Unmarshal(data, &kept); err != nil {
		return nil, fmt.Errorf("reading the cluster's settings: %s is damaged: %w: start with the settings that the cluster "+
			"was made with after removing the file, which makes it anew", file, err)
	}
	if kept == nil { // the file says null
		kept = map[string]string{}
	}
	return kept, nil
}
