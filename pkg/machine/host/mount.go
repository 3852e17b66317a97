package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// shareRoot makes all mounts shared, as systemd does. Mounts that a pod makes with bidirectional propagation (CSI drivers)
// then reach the host, and the host's mounts reach pods.
func shareRoot(l *ledger.Ledger) error {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return fmt.Errorf("reading the mount table: %w", err)
	}
	entries := unshared(mounts)
	if !slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.Name == "/" }) {
		return nil
	}
	if err := l.Note(entries...); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("making mounts shared (mount --make-rshared /): %w", err)
	}
	return nil
}

// unshared returns a ledger entry for each visible mount that is not shared.
func unshared(mounts []*mountinfo.Info) (entries []ledger.Entry) {
	for _, m := range topmost(mounts) {
		if strings.Contains(m.Optional, "shared:") {
			continue
		}
		old := "private"
		if strings.Contains(m.Optional, "master:") {
			old = "slave"
		}
		entries = append(entries, ledger.Entry{Kind: ledger.Propagation, Name: m.Mountpoint, Old: old, New: "shared"})
	}
	return entries
}

// topmost leaves out the mounts that a later mount at the same mount point covers.
func topmost(mounts []*mountinfo.Info) (top []*mountinfo.Info) {
	last := map[string]*mountinfo.Info{}
	for _, m := range mounts {
		last[m.Mountpoint] = m
	}
	return slices.DeleteFunc(slices.Clone(mounts), func(m *mountinfo.Info) bool { return last[m.Mountpoint] != m })
}

// shareNetNS makes the directory of network namespaces a shared mount before the first namespace is mounted there.
// Otherwise the first `ip netns add` on the machine would bind the directory over itself, and with it each mount of an
// earlier sandbox's namespace: containerd could not remove those sandboxes any more.
func shareNetNS(l *ledger.Ledger) error {
	if err := l.MkdirAll(footprint.NetNSDir, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", footprint.NetNSDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EINVAL) { // EINVAL: it is no mount point yet
		return fmt.Errorf("making %s a shared mount: %w", footprint.NetNSDir, err)
	}
	if err := l.Note(ledger.Entry{Kind: ledger.Mount, Name: footprint.NetNSDir}); err != nil {
		return err
	}
	if err := unix.Mount(footprint.NetNSDir, footprint.NetNSDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s to itself: %w", footprint.NetNSDir, err)
	}
	if err := unix.Mount("", footprint.NetNSDir, "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making %s a shared mount: %w", footprint.NetNSDir, err)
	}
	return nil
}
