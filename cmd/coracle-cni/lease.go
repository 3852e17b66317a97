package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"
)

// leases are the leased addresses of this node in the format of host-local: a file for each.
type leases struct {
	dataDir string
	network string
}

func (l leases) open() (*disk.Store, error) {
	store, err := disk.New(l.network, l.dataDir)
	if err != nil {
		return nil, fmt.Errorf("opening address leases in %s: %w", filepath.Join(l.dataDir, l.network), err)
	}
	return store, nil
}

// take leases one address out of each subnet, all or none.
func (l leases) take(id, ifName string, subnets []netip.Prefix) (_ *result, err error) {
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

// release releases all addresses of the container.
func (l leases) release(id, ifName string) error {
	store, err := l.open()
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Lock(); err != nil {
		return fmt.Errorf("locking address leases: %w", err)
	}
	defer store.Unlock()
	return store.ReleaseByID(id, ifName)
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
	store, err := l.open()
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Lock(); err != nil {
		return fmt.Errorf("locking address leases: %w", err)
	}
	defer store.Unlock()
	keep := map[string]bool{}
	for _, a := range valid {
		keep[a.ContainerID+disk.LineBreak+a.IfName] = true
	}
	dir := filepath.Join(l.dataDir, l.network)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing address leases: %w", err)
	}
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err != nil {
			continue // not a lease, but the lock or the last leased address
		}
		holder, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || keep[strings.TrimSpace(string(holder))] {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("releasing %s: %w", e.Name(), err)
		}
	}
	return nil
}
