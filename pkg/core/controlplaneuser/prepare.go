package controlplaneuser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/filewatch"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Prepare does what must precede each start of the control plane: its directories belong to its user, or to root if it runs as root,
// the requests of the last run that are done are gone, and the copies are there.
func (c *Copies) Prepare() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.adopt(); err != nil {
		return err
	}
	if err := giveDirs(c.cfg, c.cfg.ControlPlane.User); err != nil {
		return err
	}
	if c.cfg.ControlPlane.User == 0 {
		return ToRoot(c.cfg.Dirs)
	}
	if err := os.RemoveAll(c.cfg.Dirs.State("control-plane")); err != nil {
		return err
	}
	if err := c.takeMarks(); err != nil {
		return err
	}
	needed, further := c.sync()
	if further != nil {
		c.front.Failed(further)
	}
	return needed
}

// adopt moves files of earlier versions to where the control plane's user may write them. An earlier version that runs again finds
// them through links.
func (c *Copies) adopt() error {
	d := c.cfg.Dirs
	for from, to := range map[string]string{d.FormerOwnNodes(): d.OwnNodes(), d.AuditLogLink(): d.AuditLog()} {
		info, err := os.Lstat(from)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	links := map[string]string{d.FormerOwnNodes(): "control-plane/own-nodes.json"}
	if c.cfg.API.AuditPolicy != "" {
		links[d.AuditLogLink()] = "audit/audit.log"
	}
	for path, target := range links {
		if paths.Exists(path) {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			return err
		}
	}
	return nil
}

// takeMarks does what the control plane's marks ask for.
func (c *Copies) takeMarks() error {
	d := c.cfg.Dirs
	if paths.Exists(d.Joined()) {
		if err := c.front.Joined(); err != nil {
			return err
		}
		if err := os.RemoveAll(d.Joined()); err != nil { // the user may have made anything
			return err
		}
	}
	if paths.Exists(d.Authorities()) {
		data, err := readMark(d.Authorities())
		if err == nil {
			err = c.front.Adopt(data)
		}
		if err := errors.Join(err, os.RemoveAll(d.Authorities())); err != nil { // the control plane writes it again after a while
			return fmt.Errorf("taking over the cluster's authorities: %w", err)
		}
	}
	for _, request := range []string{d.ResetRequest(), d.RekeyRequest()} {
		if done := d.Done(request); paths.Exists(done) {
			if err := remove(request); err != nil {
				return err
			}
			needed, _ := c.sync()
			if err := errors.Join(needed, os.RemoveAll(done)); err != nil {
				return err
			}
		}
	}
	return nil
}

// marks describes the marks of the control plane.
func (c *Copies) marks() string {
	d := c.cfg.Dirs
	all := []string{d.Joined(), d.Done(d.ResetRequest()), d.Done(d.RekeyRequest())}
	all = slices.DeleteFunc(all, func(file string) bool { return !paths.Exists(file) })
	if paths.Exists(d.Authorities()) { // it may be written again before anybody sees that it was taken
		all = append(all, filewatch.State(d.Authorities()))
	}
	return strings.Join(all, " ")
}

// largestMark limits a mark that has content, in bytes.
const largestMark = 1 << 20

// readMark reads a file that the control plane's user has written. It follows no link and waits for no pipe.
func readMark(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no file", path))
	}
	return io.ReadAll(io.LimitReader(file, largestMark))
}

// retryAfter is the pause after an error of Keep.
const retryAfter = 10 * time.Second

// Keep takes marks, and updates the copies after changes of their originals, until ctx is done.
func (c *Copies) Keep(ctx context.Context) {
	if c.cfg.ControlPlane.User == 0 {
		return
	}
	changes := filewatch.Changes(ctx, func() string { return c.marks() + c.state() })
	for {
		var again <-chan time.Time
		if err := c.Sync(); err != nil {
			c.front.Failed(err)
			again = time.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return
		case <-changes:
		case <-again:
		}
	}
}

// Sync takes marks and makes the copies agree with the originals. After an error a copy may be older than its original.
func (c *Copies) Sync() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.takeMarks()
	needed, further := c.sync()
	return errors.Join(err, needed, further)
}
