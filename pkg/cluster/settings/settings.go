// Package settings remembers the settings that are part of a cluster's data, so that a later start cannot
// change them by mistake: objects hold addresses out of the CIDRs, and tokens name the domain. A server that has joined
// others has the settings from them; package config keeps those.
package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Keep remembers a server's settings before its cluster is made, and refuses others once it is. Errors name the flag,
// both values and the ways out. It belongs before everything that uses the settings, and can be interrupted at any
// point. Data that an earlier coracle left without remembering is taken to have been made with these settings.
func Keep(cfg config.Config) error {
	if cfg.Role != config.Server {
		return nil
	}
	file := cfg.Dirs.ServerCluster()
	made, err := Made(cfg)
	if err != nil {
		return err
	}
	var memory join.Memory
	if made { // until then there is nothing to which settings could be wrong
		if memory, err = join.Recall(file); err != nil {
			return fmt.Errorf("%w: start with the settings that the cluster was made with after removing the file, which makes it anew", err)
		}
	}
	settings, err := cfg.Shared()
	if err != nil {
		return err
	}
	if err := changed(memory.Settings, settings); err != nil {
		return err
	}
	memory.Settings = settings
	return memory.Keep(file)
}

// changed reports the settings that a cluster's data holds and that are others now.
func changed(kept, settings config.ClusterSettings) error {
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

// Made reports whether this server has kept, or had others keep, a cluster's data: from then on there may be objects.
func Made(cfg config.Config) (bool, error) {
	if cfg.Datastore.External() {
		_, err := os.Stat(cfg.Dirs.ServerCluster())
		return err == nil, nil
	}
	return member(cfg.Dirs)
}

// member reports whether etcd has run.
func member(dirs paths.Dirs) (bool, error) {
	_, err := os.Stat(filepath.Join(dirs.Etcd(), "member"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking for the cluster's data: %w", err)
	}
	return err == nil, nil
}
