package localcluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Handout is a directory of a session for who works with the cluster and may not look into the store: it belongs to
// them, and goes with the cluster.
type Handout struct {
	Dir     string
	Cluster string
}

// Kubeconfig is the cluster's administrator's.
func (h Handout) Kubeconfig() string { return filepath.Join(h.Dir, "kubeconfig.yaml") }

// Bin is a directory with kubectl, for the end of PATH.
func (h Handout) Bin() string { return filepath.Join(h.Dir, "bin") }

// Cache is for what kubectl remembers of the cluster, which is not true of the next one with the same address.
func (h Handout) Cache() string { return filepath.Join(h.Dir, "cache") }

// Handout makes the directory, for a user and a group.
func (s *Session) Handout(uid, gid int) (Handout, error) {
	h := Handout{Dir: s.Record.Handout, Cluster: s.Record.Name}
	if err := s.fillHandout(h, uid, gid); err != nil {
		return h, fmt.Errorf("making the directory with the command's kubeconfig: %w", err)
	}
	return h, nil
}

func (s *Session) fillHandout(h Handout, uid, gid int) error {
	data, err := os.ReadFile(s.store.Kubeconfig(h.Cluster))
	if err != nil {
		return err
	}
	if err := os.Mkdir(h.Dir, 0o700); err != nil { // it is in a directory where everybody may write: one that is there is not ours
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
	if err := offer(filepath.Join(s.Record.Payload, core), filepath.Join(h.Bin(), "kubectl"), uid); err != nil {
		return err
	}
	for _, path := range []string{h.Bin(), h.Cache(), h.Kubeconfig(), h.Dir} {
		if err := os.Chown(path, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// core is the program of the payload that is kubectl if it is called so.
const core = "coracle-core"

// offer makes a program available at a path for a user: by a link, or as a file of its own where only root gets to
// what a link would name.
func offer(program, at string, uid int) error {
	if uid == 0 || public(program) {
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

// public reports whether everybody gets to a file.
func public(path string) bool {
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
