package localcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Session is a cluster that exists as long as the process that made it. When that process ends, for whatever reason, the holder removes the
// cluster. If the holder is killed too, the next Sweep removes the rest.
type Session struct {
	Record Record
	store  Store
	conn   net.Conn // the holder removes the cluster when it is closed
	// snapshot is that of Snapshot, "" for none.
	snapshot string
}

// Hold makes a cluster like Up, which is removed when this process ends. It does not change the user's kubeconfig.
func (m Maker) Hold(ctx context.Context, p Plan) (*Session, error) {
	m.UserConfig = ""
	var err error
	if m.owner, err = describeProcess(os.Getpid()); err != nil {
		return nil, err
	}
	r, conn, err := m.make(ctx, p)
	if err != nil {
		return nil, err
	}
	return &Session{Record: r, store: m.Store, conn: conn}, nil
}

// RandomName returns a random name of 30 bits.
func RandomName() string { return "run-" + strings.ToLower(rand.Text()[:6]) }

// guardOrder, followed by the number of a process group, makes the holder end that group when this process ends; 0 is none.
const guardOrder = "guard "

// Guard makes the holder end a process group if this process ends without Close. 0 ends the guard.
func (s *Session) Guard(group int) error {
	if _, err := fmt.Fprintf(s.conn, "%s%d\n", guardOrder, group); err != nil {
		return fmt.Errorf("the process that holds the cluster is gone: %w", err)
	}
	return nil
}

// Close removes the cluster with everything in it.
func (s *Session) Close(ctx context.Context) error {
	_, err := s.store.Down(ctx, s.Record.Name)
	s.conn.Close()
	if isNotFound(err) {
		err = nil
	}
	if s.snapshot != "" {
		err = errors.Join(err, s.store.RemoveSnapshot(ctx, s.snapshot))
	}
	return err
}

// Sweep removes what is left of sessions whose owner and holder were both killed.
func (s Store) Sweep(ctx context.Context) error {
	if err := s.removeUnfinished(ctx); err != nil {
		return err
	}
	all, err := s.List()
	errs := []error{err, s.sweepSnapshots(ctx)}
	for _, r := range all {
		if r.Owner.none() || r.Owner.alive() || r.Holder.alive() {
			continue
		}
		if _, err := s.Down(ctx, r.Name); err != nil && !isNotFound(err) { // another process may have removed it
			errs = append(errs, fmt.Errorf("removing what is left of cluster %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// removeUnfinished removes what killed processes have left of clusters without a record.
func (s Store) removeUnfinished(ctx context.Context) error {
	if !paths.Exists(s.Dir) {
		return nil
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range s.names() {
		s.discardUnfinished(name)
	}
	s.tidy()
	return nil
}

// discardUnfinished removes the directory that a killed Maker has made for a cluster and has not written the record of. What else is in a directory
// without a record is not coracle's: --data-dir may name one with other things in it. The caller holds the lock.
func (s Store) discardUnfinished(name string) {
	if paths.Exists(s.recordFile(name)) {
		return
	}
	for _, path := range append(atomicfile.Unfinished(s.recordFile(name)), s.logs(name), s.dir(name)) {
		_ = os.Remove(path)
	}
}

// newCommandDir returns the path of a session's CommandDir. The name is random, so that no other user can make a directory of that name
// before, which would be removed with the cluster.
func newCommandDir(name string) string {
	return filepath.Join(os.TempDir(), "coracle-"+name+"-"+strings.ToLower(rand.Text()[:10]))
}

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
