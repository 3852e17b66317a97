package localcluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Session is a cluster that is there for as long as the process that made it. When that ends, however it does, the
// keeper removes the cluster; what is left if somebody kills the keeper too, the next Sweep removes.
type Session struct {
	Record Record
	store  Store
	conn   net.Conn // its end is the keeper's sign
}

// Hold makes a cluster as Up does, which goes when this process ends. It leaves the user's kubeconfig alone.
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

// RandomName is a name that no other cluster has, but by a chance of one in a thousand million.
func RandomName() string { return "run-" + strings.ToLower(rand.Text()[:6]) }

// guardOrder is what the keeper is told of a process group, the number of which follows, that must not outlive this
// process; 0 is none.
const guardOrder = "guard "

// Guard makes the keeper end a process group if this process ends without Close. 0 ends the guard.
func (s *Session) Guard(group int) error {
	if _, err := fmt.Fprintf(s.conn, "%s%d\n", guardOrder, group); err != nil {
		return fmt.Errorf("the cluster's keeper is gone: %w", err)
	}
	return nil
}

// Close removes the cluster with everything in it.
func (s *Session) Close(ctx context.Context) error {
	_, err := s.store.Down(ctx, s.Record.Name)
	s.conn.Close()
	var gone *NotFoundError
	if errors.As(err, &gone) {
		return nil
	}
	return err
}

// endPatience is how long processes that are asked to end may take.
const endPatience = 2 * time.Second

// endGroup ends a process group that has lost its parent.
func endGroup(group int, leader uint64) {
	if ticks, err := state.StartTicks(group); group <= 0 || err == nil && ticks != leader {
		return // the number is another process's by now
	}
	EndGroup(group)
}

// EndGroup ends what is left of a process group: by SIGTERM, and after two seconds by SIGKILL.
func EndGroup(group int) {
	if syscall.Kill(-group, syscall.SIGTERM) != nil {
		return // nobody is left
	}
	for asked := time.Now(); time.Since(asked) < endPatience; <-time.After(lockPoll) {
		if syscall.Kill(-group, 0) != nil {
			return
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}

// Sweep removes what sessions have left whose process and keeper were both killed.
func (s Store) Sweep(ctx context.Context) error {
	if err := s.removeUnfinished(ctx); err != nil {
		return err
	}
	all, err := s.List()
	errs := []error{err}
	for _, r := range all {
		if r.Owner.none() || r.Owner.alive() || r.Keeper.alive() {
			continue
		}
		_, err := s.Down(ctx, r.Name)
		var gone *NotFoundError // another one does the same
		if err != nil && !errors.As(err, &gone) {
			errs = append(errs, fmt.Errorf("removing what is left of cluster %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// removeUnfinished removes directories that have no record: who made them was killed before it wrote one.
func (s Store) removeUnfinished(ctx context.Context) error {
	if len(s.names()) == 0 {
		return nil
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	for _, name := range s.names() {
		if _, err := os.Stat(s.recordFile(name)); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, os.RemoveAll(s.dir(name)))
		}
	}
	s.tidy()
	return errors.Join(errs...)
}

// handout is the directory outside the store that holds what the session's owner gives to others. Nobody can know its name
// before it is made: it goes with the cluster, and one that was there before would go too.
func handout(name string) string {
	return filepath.Join(os.TempDir(), "coracle-"+name+"-"+strings.ToLower(rand.Text()[:10]))
}
