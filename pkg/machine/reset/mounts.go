package reset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// findMounts lists the mounts that containerd and the kubelet made, the last one first. Users' mounts inside the data
// directory are not among them.
func findMounts(_ context.Context, m *machine) ([]Item, error) {
	mounts, err := m.mounts()
	if err != nil {
		return nil, err
	}
	var items []Item
	for _, point := range slices.Backward(mounts) {
		if inside(point, m.dirs.Run) || inside(point, m.dirs.Kubelet) || inside(point, m.dirs.Containerd()) {
			items = append(items, mountItem(point))
		}
	}
	return items, nil
}

func mountItem(point string) Item {
	return Item{Kind: "mount", Name: point, remove: func(context.Context) error { return unmount(point) }}
}

// unmount unmounts a file system. One that is in use is detached and ends with its last user.
func unmount(point string) error {
	err := unix.Unmount(point, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(point, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // it is no mount any more
	}
	return err
}

// findNetNS lists the pods' network namespaces, and the mount of their directory if coracle made it and it holds no other
// namespaces.
func findNetNS(_ context.Context, m *machine) ([]Item, error) {
	dir := m.host(footprint.NetNSDir)
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var items []Item
	foreign := false
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "cni-") || !m.seen.mentions(f.Name()) {
			foreign = true
			continue
		}
		path := filepath.Join(dir, f.Name())
		items = append(items, Item{Kind: "network namespace", Name: path, remove: func(context.Context) error {
			if err := unmount(path); err != nil {
				return err
			}
			return removed(os.Remove(path))
		}})
	}
	mounts, err := m.mounts()
	if err != nil {
		return items, err
	}
	for _, e := range m.entries(ledger.Mount) {
		if slices.Contains(mounts, e.Name) && (e.Name != footprint.NetNSDir || !foreign) && !m.ephemeral(e.Name) {
			items = append(items, mountItem(e.Name))
		}
	}
	return items, nil
}

// mounts lists the mount points of this mount namespace in the order of mounting.
func (m *machine) mounts() ([]string, error) {
	table, err := m.mountTable()
	points := make([]string, len(table))
	for i, row := range table {
		points[i] = row.Mountpoint
	}
	return points, err
}

func (m *machine) mountTable() ([]*mountinfo.Info, error) {
	f, err := os.Open(filepath.Join(m.proc, "self", "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, nil)
}

// inside reports whether a path is below a directory and not the directory itself.
func inside(path, dir string) bool {
	return dir != "" && dir != "/" && strings.HasPrefix(path, dir+"/")
}

// removed returns nil for the error that something does not exist.
func removed(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
