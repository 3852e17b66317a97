package nshost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// mount is one mount of the host. Targets are relative to the new root.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// buildRoot makes the host's root file system, a copy-on-write view of this machine's, and pivots into it.
func buildRoot(s spec) error {
	for _, sub := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(s.Layers, sub), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	for _, m := range mounts(s) {
		if err := m.mount(s.Root); err != nil {
			return err
		}
	}
	dropTargets(s)
	for name, content := range s.Files {
		if err := writeFile(filepath.Join(s.Root, name), content); err != nil {
			return err
		}
	}
	return pivot(s.Root)
}

// mounts lists a host's mounts in order. /root is hidden, because this machine's may hold kubeconfigs and caches of other clusters.
func mounts(s spec) []mount {
	all := []mount{
		{"overlay", "", "overlay", 0, fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", s.Layers, s.Layers)},
		{"proc", "proc", "proc", 0, ""},
		{"sysfs", "sys", "sysfs", 0, ""},
		{"/dev", "dev", "", unix.MS_BIND | unix.MS_REC, ""},
		{"tmpfs", "run", "tmpfs", 0, "mode=0755"},
		{"tmpfs", "tmp", "tmpfs", 0, "mode=1777"},
		{"tmpfs", "root", "tmpfs", 0, "mode=0700"},
		{"tmpfs", "sys/fs/cgroup", "tmpfs", 0, "mode=0755"},
	}
	for _, h := range hierarchies() {
		if h.name == "" { // cgroup v2 only: it is mounted at the directory itself
			all = all[:len(all)-1]
		}
		all = append(all, mount{"cgroup", "sys/fs/cgroup/" + h.name, h.fstype, 0, h.options})
	}
	for _, m := range s.Mounts { // their targets may be below one of these
		switch target := strings.TrimPrefix(m.Target, "/"); {
		case m.Tmpfs:
			all = append(all, mount{"tmpfs", target, "tmpfs", 0, "mode=0755"})
		case m.missing():
		default:
			all = append(all, mount{m.Source, target, "", unix.MS_BIND, ""})
			if m.ReadOnly {
				all = append(all, mount{"", target, "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY, ""})
			}
		}
	}
	return all
}

// missing reports whether a host starts without the mount.
func (m Mount) missing() bool { return m.Optional && !paths.Exists(m.Source) }

// dropTargets removes the empty files that were mount points of missing sources at an earlier start.
func dropTargets(s spec) {
	for _, m := range s.Mounts {
		target := filepath.Join(s.Root, m.Target)
		if info, err := os.Lstat(target); m.missing() && err == nil && info.Mode().IsRegular() && info.Size() == 0 {
			_ = os.Remove(target)
		}
	}
}

func (m mount) mount(root string) error {
	target := filepath.Join(root, m.target)
	if err := m.makeTarget(target); err != nil {
		return err
	}
	if err := unix.Mount(m.source, target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", m.source, target, err)
	}
	return nil
}

// makeTarget makes the mount point, a file or a directory.
func (m mount) makeTarget(target string) error {
	if m.flags&unix.MS_REMOUNT != 0 {
		return nil
	}
	if info, err := os.Stat(m.source); m.flags&unix.MS_BIND != 0 && err == nil && !info.IsDir() {
		if _, err := os.Stat(target); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return writeFile(target, "")
	}
	return os.MkdirAll(target, 0o755)
}

// writeFile replaces a file or a symbolic link.
func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// pivot makes root the root of this mount namespace and unmounts the old one.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivoting into %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("letting go of the old root: %w", err)
	}
	return os.Chdir("/")
}
