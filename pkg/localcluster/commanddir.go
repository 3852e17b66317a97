package localcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CommandDir is a directory for the user who runs a command with a session's cluster, because only root can read the store. It belongs to
// that user and is removed with the cluster.
type CommandDir struct {
	Dir     string
	Cluster string
}

// Kubeconfig is the path of a kubeconfig with all rights.
func (h CommandDir) Kubeconfig() string { return filepath.Join(h.Dir, "kubeconfig.yaml") }

// Bin is a directory with kubectl, for the end of PATH.
func (h CommandDir) Bin() string { return filepath.Join(h.Dir, "bin") }

// Cache is a directory for kubectl's cache, which would be wrong for the next cluster with the same address.
func (h CommandDir) Cache() string { return filepath.Join(h.Dir, "cache") }

// CommandDir makes the directory for a user and a group.
func (s *Session) CommandDir(uid, gid int) (CommandDir, error) {
	h := CommandDir{Dir: s.Record.CommandDir, Cluster: s.Record.Name}
	if err := s.fill(h, uid, gid); err != nil {
		return h, fmt.Errorf("making the directory with the command's kubeconfig: %w", err)
	}
	return h, nil
}

func (s *Session) fill(h CommandDir, uid, gid int) error {
	data, err := os.ReadFile(s.store.Kubeconfig(h.Cluster))
	if err != nil {
		return err
	}
	if err := os.Mkdir(h.Dir, 0o700); err != nil { // the parent is world-writable: an existing directory may be another user's
		return err
	}
	for _, dir := range []string{h.Bin(), h.Cache()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := writePrivate(h.Kubeconfig(), data); err != nil {
		return err
	}
	if err := installProgram(filepath.Join(s.Record.Payload, core), filepath.Join(h.Bin(), "kubectl"), uid); err != nil {
		return err
	}
	for _, path := range []string{h.Bin(), h.Cache(), h.Kubeconfig(), h.Dir} {
		if err := os.Chown(path, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// core is the program of the payload that acts as kubectl if it is called by that name.
const core = "coracle-core"

// installProgram makes a program available to a user at a path: as a symbolic link if the user can reach the program, else as a hard link or
// a copy.
func installProgram(program, at string, uid int) error {
	if uid == 0 || reachableByAll(program) {
		return os.Symlink(program, at)
	}
	if os.Link(program, at) == nil {
		return nil
	}
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// reachableByAll reports whether all users can search the directories above a file.
func reachableByAll(path string) bool {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
