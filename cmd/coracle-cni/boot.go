package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/process"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// bootFile is the file beside the leases that holds the boot they are from. The lease files of host-local hold a container's ID each,
// so it cannot be taken for one.
const bootFile = "boot"

// thisBoot identifies the life of this machine's processes: no pod of another boot still runs. The kernel's boot ID alone does not
// tell a container that was restarted, whose pods ended with its PID 1. "" means that it is unknown.
func thisBoot() string {
	first, err := process.Find(1)
	boot := state.BootID()
	if err != nil || boot == "" {
		return ""
	}
	return fmt.Sprintf("%s %d", boot, first.Started)
}

// releaseFormer releases all leases of a former boot: its pods are gone, but after a power cut or in a restarted container nobody
// has released their addresses. Leases without a boot file are kept: a former version of coracle made them, and their pods may run.
func (l leases) releaseFormer() error {
	boot := l.boot()
	if boot == "" {
		return nil
	}
	return l.locked(func(*disk.Store) error {
		dir := filepath.Join(l.dataDir, l.network)
		file := filepath.Join(dir, bootFile)
		data, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("reading the boot of the address leases: %w", err)
		}
		former := strings.TrimSpace(string(data))
		if former == boot {
			return nil
		}
		if former != "" {
			if err := removeLeases(dir, nil); err != nil {
				return err
			}
		}
		// Written last, so that an interrupted release is repeated.
		return atomicfile.Write(file, []byte(boot+"\n"), 0o600)
	})
}

// removeLeases removes the leases whose holders are not in keep.
func removeLeases(dir string, keep map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing address leases: %w", err)
	}
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err != nil {
			continue // not a lease, but the lock, the boot or the last leased address
		}
		if len(keep) > 0 {
			holder, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil || keep[strings.TrimSpace(string(holder))] {
				continue
			}
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("releasing %s: %w", e.Name(), err)
		}
	}
	return nil
}
