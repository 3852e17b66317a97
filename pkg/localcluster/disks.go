package localcluster

import (
	"crypto/rand"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
)

// prepare makes the files that the nodes share, and mounts the file system for their disks if needed.
func (h *holder) prepare() error {
	name := h.record.Name
	if err := atomicfile.Write(h.store.tokenFile(name), []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	if err := bindExecutable(h.store.executable(name)); err != nil {
		return err
	}
	hosts := h.store.hosts(name)
	if err := os.MkdirAll(hosts, 0o755); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(hosts, &fs); err != nil {
		return err
	}
	if fs.Type != unix.OVERLAYFS_SUPER_MAGIC && (!h.record.Ephemeral || fs.Type == unix.TMPFS_MAGIC) {
		return nil
	}
	// An overlayfs, as in a container, cannot hold the upper layers of another one.
	if err := unix.Mount("tmpfs", hosts, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting memory for the nodes' disks: %w", err)
	}
	return nil
}

// bindExecutable mounts this executable at a path, where it stays the same when an upgrade replaces the original file.
func bindExecutable(at string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this executable: %w", err)
	}
	if err := os.WriteFile(at, nil, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(self, at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", self, at, err)
	}
	return nil
}
