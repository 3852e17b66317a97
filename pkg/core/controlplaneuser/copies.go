package controlplaneuser

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/filewatch"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Copies keeps the copies for the control plane. Its methods are safe for concurrent use.
type Copies struct {
	cfg     config.Config
	sources []source
	front   Front

	mu sync.Mutex
	// named are the files that registries.yaml named at the last update.
	named []string
	// copied are the states of the originals when they were copied, by the path of the copy.
	copied map[string]string
}

// Front is what the process that keeps the copies knows of other packages.
type Front struct {
	Joined func() error                     // records that another server has joined
	Adopt  func(authorities []byte) error   // writes the cluster's authorities, which are being changed
	Named  func(registries string) []string // lists the files that a registries.yaml names
	Failed func(error)                      // gets errors that do not keep the control plane from starting
}

// NewCopies returns the copies for the control plane of a server with the given configuration.
func NewCopies(cfg config.Config, front Front) *Copies {
	return &Copies{cfg: cfg, sources: sources(cfg), front: front, copied: map[string]string{}}
}

// state describes all originals: the result differs after each change.
func (c *Copies) state() string {
	var all strings.Builder
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range c.named {
		fmt.Fprintln(&all, file, filewatch.State(file))
	}
	for _, s := range c.sources {
		if s.wants == nil {
			fmt.Fprintln(&all, s.from, filewatch.State(s.from))
			continue
		}
		if s.replaced {
			for _, dir := range []string{s.from, filepath.Join(s.from, "etcd")} {
				fmt.Fprintln(&all, dir, filewatch.State(dir))
			}
			continue
		}
		fmt.Fprintln(&all, s.from, dirID(s.from))
		s.walk(func(name string) { fmt.Fprintln(&all, name, filewatch.State(filepath.Join(s.from, name))) })
	}
	return all.String()
}

// sync makes the copies agree with the originals. A copy is only removed when its original is known to be gone. needed has the errors
// with which the control plane cannot start, and further those of users' manifests, charts and logins.
func (c *Copies) sync() (needed, further error) {
	for dir, mode := range map[string]fs.FileMode{c.cfg.Dirs.Manifests(): 0o700, c.cfg.Dirs.Charts(): 0o700, c.cfg.Dirs.VolumePlugins(): 0o755} {
		if !paths.Exists(dir) { // a link without a target is there
			if err := os.MkdirAll(dir, mode); err != nil {
				return err, nil
			}
		}
	}
	for _, s := range c.sources {
		switch {
		case s.wants == nil:
			needed = errors.Join(needed, c.copy(s.to, filewatch.State(s.from), func() (*os.File, error) { return open(s.from) }))
		case s.replaced:
			needed = errors.Join(needed, c.syncTree(s))
		default:
			further = errors.Join(further, c.syncTree(s))
		}
	}
	return needed, errors.Join(further, c.syncNamed())
}

// open opens a file and waits for no pipe.
func open(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) }

// syncNamed updates the copies of the files that registries.yaml names.
func (c *Copies) syncNamed() error {
	var errs []error
	copies := c.cfg.Dirs
	copies.Copies = copies.CopiesFor()
	named := c.front.Named(c.cfg.Dirs.Registries())
	for _, file := range c.named {
		if !slices.Contains(named, file) {
			delete(c.copied, copies.CopyOf(file))
			errs = append(errs, remove(copies.CopyOf(file)))
		}
	}
	c.named = named
	for _, file := range named {
		errs = append(errs, c.copy(copies.CopyOf(file), filewatch.State(file), func() (*os.File, error) { return open(file) }))
	}
	return errors.Join(errs...)
}

// syncTree updates the copy of a tree. Its ID is empty while the copy of another directory changes, so that nobody takes the mixture for
// the content of either.
func (c *Copies) syncTree(s source) error {
	id, err := DirID(s.from)
	if err != nil {
		return fmt.Errorf("copying for the control plane: %w", err)
	}
	if err := c.makeDir(s.to); err != nil {
		return err
	}
	before, _ := os.ReadFile(s.to + idSuffix)
	if string(before) != id {
		if err := c.write(s.to+idSuffix, strings.NewReader("")); err != nil {
			return err
		}
	}
	wanted := map[string]bool{}
	var errs []error
	err = s.walk(func(name string) {
		to := filepath.Join(s.to, name)
		wanted[to] = true
		errs = append(errs, c.copy(to, filewatch.State(filepath.Join(s.from, name)), func() (*os.File, error) { return s.open(s.from, name) }))
	})
	whole := errors.Join(append(errs, err)...) == nil // an original without a copy must not count as gone, also under a former name
	if whole {
		errs = append(errs, c.prune(s, wanted))
	}
	if after := dirID(s.from); after != id {
		return errors.Join(append(errs, fmt.Errorf("%s was replaced while it was copied for the control plane", s.from))...)
	}
	if whole && string(before) != id {
		errs = append(errs, c.write(s.to+idSuffix, strings.NewReader(id)))
	}
	return errors.Join(append(errs, err)...)
}

// walk calls visit with the names of a tree's files. Hidden directories are left out.
func (s source) walk(visit func(name string)) error {
	root, err := filepath.EvalSymlinks(s.from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !entry.IsDir() && s.wants(name) && !strings.HasPrefix(entry.Name(), "."):
			visit(name)
		}
		return nil
	})
}

// copy updates one copy. Where the original cannot be read, a dangling link takes its place, which cannot be read either.
func (c *Copies) copy(to, state string, open func() (*os.File, error)) error {
	if c.copied[to] == state {
		return nil
	}
	file, err := open()
	switch {
	case err == nil:
		defer file.Close()
		if info, statErr := file.Stat(); statErr == nil && info.Mode().IsRegular() {
			err = c.write(to, file)
		}
	case errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(state, "leads to"):
		err = remove(to)
	default:
		err = errors.Join(remove(to), c.makeDir(filepath.Dir(to)), os.Symlink("/nonexistent/unreadable", to))
	}
	if err != nil {
		return fmt.Errorf("copying %s for the control plane: %w", filepath.Base(to), err)
	}
	c.copied[to] = state
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// prune removes copies whose originals are gone.
func (c *Copies) prune(s source, wanted map[string]bool) error {
	return filepath.WalkDir(s.to, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || wanted[path] {
			return err
		}
		delete(c.copied, path)
		return os.Remove(path)
	})
}

// write replaces a copy in one step. It belongs to the control plane's user, which cannot replace it.
func (c *Copies) write(to string, from io.Reader) error {
	if err := c.makeDir(filepath.Dir(to)); err != nil {
		return err
	}
	if strings.HasSuffix(to, ".kubeconfig") { // it names keys, which have copies
		data, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		copies := c.cfg.Dirs
		copies.Copies = copies.CopiesFor()
		from = bytes.NewReader(bytes.ReplaceAll(data, []byte(c.cfg.Dirs.PKI()+"/"), []byte(copies.PKI()+"/")))
	}
	file, err := os.CreateTemp(filepath.Dir(to), ".new-*")
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, from)
	if err = errors.Join(err, file.Chown(c.cfg.ControlPlane.User, c.cfg.ControlPlane.User)); err == nil {
		err = os.Rename(file.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// makeDir makes a directory of root's that the control plane's group can read.
func (c *Copies) makeDir(dir string) error {
	top := c.cfg.Dirs.CopiesFor()
	if _, err := os.Lstat(dir); err == nil && dir != top {
		return nil
	}
	if dir != top {
		if err := c.makeDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chown(dir, 0, c.cfg.ControlPlane.User)
}
