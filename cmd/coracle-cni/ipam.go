package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"
	"github.com/fsnotify/fsnotify"

	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// subnetWait is how long an ADD waits for the node's subnet. The kubelet's timeout for a sandbox is two minutes.
const subnetWait = 60 * time.Second

// awaitSubnet reads the node's subnet as soon as the file exists.
func awaitSubnet(path string, limit time.Duration) (podsubnet.Subnet, error) {
	s, err := podsubnet.Read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return s, fmt.Errorf("watching for %s: %w", path, err)
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return s, fmt.Errorf("waiting for the node's pod subnet: watching %s (is coracle running?): %w", filepath.Dir(path), err)
	}
	timeout := time.After(limit)
	for {
		// Read before the first event, too: the file may have been written before the watch.
		if s, err := podsubnet.Read(path); !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		select {
		case <-watcher.Events:
		case err := <-watcher.Errors:
			return s, fmt.Errorf("watching for %s: %w", path, err)
		case <-timeout:
			return s, fmt.Errorf("waiting for the node's pod subnet: no %s within %s; "+
				"`coracle status` says what the pod network waits for", path, limit)
		}
	}
}

// leases are the leased addresses of this node in the format of host-local: a file for each.
type leases struct {
	dataDir string
	network string
	boot    func() string // thisBoot, except in tests
}

// leases returns the leases of the configured network.
func (c conf) leases() leases { return leases{c.DataDir, c.Name, thisBoot} }

func (l leases) open() (*disk.Store, error) {
	store, err := disk.New(l.network, l.dataDir)
	if err != nil {
		return nil, fmt.Errorf("opening address leases in %s: %w", filepath.Join(l.dataDir, l.network), err)
	}
	return store, nil
}

// take leases one address out of each subnet, all or none.
func (l leases) take(id, ifName string, subnets []netip.Prefix) (_ *result, err error) {
	if err := l.releaseFormer(); err != nil {
		return nil, err
	}
	store, err := l.open()
	if err != nil {
		return nil, err
	}
	defer store.Close()
	out := &result{CNIVersion: current.ImplementedSpecVersion}
	var taken *allocator.IPAllocator
	defer func() {
		if err != nil && taken != nil {
			_ = taken.Release(id, ifName) // of all subnets; err is the better error
		}
	}()
	for i, subnet := range subnets {
		subnet = subnet.Masked()
		set := allocator.RangeSet{{Subnet: types.IPNet{
			IP:   subnet.Addr().AsSlice(),
			Mask: net.CIDRMask(subnet.Bits(), subnet.Addr().BitLen()),
		}}}
		if err := set.Canonicalize(); err != nil {
			return nil, fmt.Errorf("pod subnet %s: %w", subnet, err)
		}
		from := allocator.NewIPAllocator(&set, store, i)
		ip, err := from.Get(id, ifName, nil)
		if err != nil {
			return nil, fmt.Errorf("leasing an address in %s: %w", subnet, err)
		}
		taken = from
		out.IPs = append(out.IPs, ip)
	}
	return out, nil
}

// locked calls do with the leases, which no other process changes meanwhile.
func (l leases) locked(do func(*disk.Store) error) error {
	store, err := l.open()
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Lock(); err != nil {
		return fmt.Errorf("locking address leases: %w", err)
	}
	defer store.Unlock()
	return do(store)
}

// release releases all addresses of the container.
func (l leases) release(id, ifName string) error {
	return l.locked(func(s *disk.Store) error { return s.ReleaseByID(id, ifName) })
}

// check returns an error unless the container has a lease.
func (l leases) check(id, ifName string) error {
	store, err := l.open()
	if err != nil {
		return err
	}
	defer store.Close()
	if !store.FindByID(id, ifName) {
		return fmt.Errorf("container %s has no address lease for %s", id, ifName)
	}
	return nil
}

// keepOnly releases all leases of other attachments.
func (l leases) keepOnly(valid []types.GCAttachment) error {
	return l.locked(func(*disk.Store) error {
		keep := map[string]bool{}
		for _, a := range valid {
			keep[a.ContainerID+disk.LineBreak+a.IfName] = true
		}
		return removeLeases(filepath.Join(l.dataDir, l.network), keep)
	})
}
