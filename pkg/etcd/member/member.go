// Package member runs the embedded etcd, one member of the cluster's. Clients connect to a unix socket. While the member is alone it has no
// open port for peers; OpenPeers opens it. A member that joins a cluster opens it at the start.
package member

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Etcd is the component. Its exported fields are set before Run.
type Etcd struct {
	Name   string         // the member's: the node's
	Dir    string         // data directory
	Socket string         // where clients connect; its directory exists
	Peer   netip.AddrPort // where other members reach this one
	TLS    TLS            // between members
	Others Others         // nil if there cannot be other servers
	Args   []string       // pass-through settings, "name=value"
	Reset  Reset
	// Volatile is set if writes need not survive a crash of the machine. etcd then does not sync files.
	Volatile bool

	updating      sync.Mutex   // held while this member's URL is changed
	defragmenting atomic.Int32 // requests to do so that are under way
	copying       sync.RWMutex // a reader copies the database, a writer defragments it
	mu            sync.Mutex
	running       *embed.Etcd     // nil before the start
	ending        <-chan struct{} // closed before etcd is stopped
	opened        *peers          // nil while the member is alone
}

// PeerPort is etcd's usual port for peers.
const PeerPort = 2380

// TLS are the files of a member's certificate for other members and of the authority for these certificates. They are read again at each
// connection.
type TLS struct{ CA, Cert, Key string }

// Others are the cluster's other servers.
type Others interface {
	// Known reports whether there are or were other servers. This server then never starts a new cluster.
	Known() bool
	// Members returns the present members from any of the servers, by a linearizable read.
	Members(ctx context.Context) ([]join.Member, error)
	// AddMember asks any of the servers to add a member.
	AddMember(ctx context.Context, m join.AddMember) (join.AddedMember, error)
}

// errRemoved is the error of a member that the cluster has removed. Its data is useless then.
var errRemoved = errors.New("this server's member was removed from the cluster's etcd")

// Run serves clients until ctx is done. It is ready when the member votes and answers linearizable reads.
func (e *Etcd) Run(ctx context.Context, ready func()) error {
	lifecycle.ProbeWith(ctx, e.answer)
	wasReady, again := false, false
	for {
		err := e.serve(ctx, again, func() { wasReady = true; ready() })
		if errors.Is(err, errRestart) && ctx.Err() == nil {
			again = true
			continue
		}
		if errors.Is(err, errUnfinished) && ctx.Err() == nil {
			if err := os.RemoveAll(filepath.Join(e.Dir, "member")); err != nil {
				return fmt.Errorf("removing the files of an interrupted start: %w", err)
			}
			continue
		}
		if !errors.Is(err, errRemoved) || ctx.Err() != nil {
			return err
		}
		if e.Others == nil || !e.Others.Known() {
			return fmt.Errorf("%w, and it knows no other server to join: give it one with --server, or begin a new cluster "+
				"after moving %s away", err, e.Dir)
		}
		if err := e.moveAside(); err != nil {
			return err
		}
		if wasReady {
			return fmt.Errorf("%w: it joins again with new data", err)
		}
	}
}

// serve runs the member once. again is set if the previous run ended with errRestart.
func (e *Etcd) serve(ctx context.Context, again bool, ready func()) error {
	fatal := make(chan error, 1)
	cfg, err := e.config(fatal)
	if err != nil {
		return err
	}
	lifecycle.RunsWith(ctx, state.Settings{Flags: flags(cfg, e.Args)})
	resetting, err := e.prepareReset(cfg)
	if err != nil {
		return err
	}
	joining := false
	if !e.hasData() && e.Others != nil && e.Others.Known() {
		if err := e.requestMembership(ctx, cfg); err != nil {
			return err
		}
		joining = true
	}
	// A socket that a crash left is unused, because the front holds the lock of the data directory.
	if err := os.Remove(e.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old socket: %w", err)
	}
	if err := e.reread(); err != nil {
		return err
	}
	if err := e.checkFound(); err != nil {
		return e.explain(err)
	}
	sealed, err := e.checkDatabase()
	if err != nil {
		return err
	}
	server, err := e.start(cfg, fatal)
	if err != nil {
		if e.leftBehind(ctx, err) {
			return errRemoved
		}
		if moved, failed := e.rebuild(err); failed != nil || !moved {
			return errors.Join(err, failed)
		}
		return e.serve(ctx, again, ready)
	}
	e.setRunning(server)
	defer e.setRunning(nil)
	l := life{Etcd: e, server: server, fatal: fatal, joining: joining, again: again, resetting: resetting, sealed: sealed}
	return l.run(ctx, ready)
}

// hasData reports whether the member has run before. The log is the last file that etcd makes.
func (e *Etcd) hasData() bool {
	found, err := filepath.Glob(filepath.Join(e.Dir, "member", "wal", "*.wal"))
	return err == nil && len(found) > 0
}

func (e *Etcd) setRunning(server *embed.Etcd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = server
}

// start calls StartEtcd in a new goroutine, because damaged files cause a panic, or a fatal log line that ends the goroutine (see logger).
func (e *Etcd) start(cfg *embed.Config, fatal <-chan error) (*embed.Etcd, error) {
	type result struct {
		server *embed.Etcd
		err    error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- result{err: fmt.Errorf("etcd panicked: %v", p)}
			}
		}()
		server, err := embed.StartEtcd(cfg)
		done <- result{server, err}
	}()
	select {
	case err := <-fatal:
		return nil, e.explain(err)
	case r := <-done:
		if r.err != nil {
			return nil, e.explain(r.err)
		}
		return r.server, nil
	}
}

// explain adds the directory of the data and the fix to an error of etcd.
func (e *Etcd) explain(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrExist) {
		return fmt.Errorf("using the data in %s: %w", e.Dir, err)
	}
	if errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EIO) {
		return fmt.Errorf("%w; the disk of %s fails, or was made read-only because it had failed (dmesg says why): restart the machine, "+
			"or put the data or a backup on another disk", err, e.Dir)
	}
	if strings.Contains(err.Error(), syscall.ENOSPC.Error()) { // etcd's log has it as text
		return fmt.Errorf("%w; the disk of %s is full: make room there, and etcd starts again by itself", err, e.Dir)
	}
	if e.Others != nil && e.Others.Known() {
		return fmt.Errorf("%w; if the data in %s is damaged, move it away: this server then gets it from the others", err, e.Dir)
	}
	return fmt.Errorf("%w; if the data in %s is damaged, put a backup in its place, or move it away to begin with an empty cluster", err, e.Dir)
}
