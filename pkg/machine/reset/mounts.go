package reset

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
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
	run, kubelet, containerd := resolved(m.dirs.Run), resolved(m.dirs.Kubelet), resolved(m.dirs.Containerd())
	for _, point := range slices.Backward(mounts) {
		if inside(point, run) || inside(point, kubelet) || inside(point, containerd) {
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
		path := filepath.Join(dir, f.Name())
		if !podNetNS.MatchString(f.Name()) || !m.seen.mentions(f.Name()) && !unfinished(path) {
			foreign = true
			continue
		}
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

// podNetNS is the name that containerd's CRI plugin gives a pod's network namespace.
var podNetNS = regexp.MustCompile(`^cni-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// unfinished reports whether no interface of a network namespace is up, so that no pod has ever had it. containerd enters a namespace into its database
// only after it has made it: one whose start was killed in between is in no record.
func unfinished(path string) bool {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return false
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return false
	}
	defer inside.Close()
	links, err := inside.LinkList()
	return err == nil && !slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Attrs().Flags&net.FlagUp != 0 })
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

func (m *machine) isMountPoint(path string) bool {
	points, err := m.mounts()
	return err == nil && slices.Contains(points, resolved(path))
}

// isLink reports whether a path is a symbolic link.
func isLink(path string) bool {
	_, err := os.Readlink(path)
	return err == nil
}

// resolved returns a path without symbolic links, as the mount table has it; the path itself if it leads nowhere.
func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	return path
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
