package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// requestMembership asks the other servers to add this member, and completes cfg.
func (e *Etcd) requestMembership(ctx context.Context, cfg *embed.Config) error {
	if err := e.clear(); err != nil {
		return err
	}
	if probe, err := net.Listen("tcp", e.Peer.String()); err != nil { // before the cluster expects it to be open
		return e.explainListen(err)
	} else if err := probe.Close(); err != nil {
		return fmt.Errorf("trying the port for other members of etcd: %w", err)
	}
	added, err := e.place(ctx)
	if err != nil {
		return err
	}
	cfg.AdvertisePeerUrls, err = parseURLs(e.peerURL())
	if err != nil {
		return fmt.Errorf("reading this member's URL: %w", err)
	}
	cfg.InitialCluster = added.InitialCluster
	cfg.ClusterState = embed.ClusterStateFlagExisting
	cfg.SnapshotCatchUpEntries = catchUpOthers
	return nil
}

// clear removes the files of an interrupted start, which has no log yet. A larger database has lost its log for another reason, so it is
// moved aside instead.
func (e *Etcd) clear() error {
	if db, err := os.Stat(filepath.Join(e.Dir, "member", "snap", "db")); err == nil && db.Size() > almostEmpty {
		return e.moveAside()
	}
	if err := os.RemoveAll(filepath.Join(e.Dir, "member")); err != nil {
		return fmt.Errorf("removing the files of an interrupted start: %w", err)
	}
	return nil
}

// almostEmpty is the largest size in bytes of a database without data.
const almostEmpty = 256 << 10

// place repeats the request until it succeeds, or the cluster refuses this machine for good. A request may take long, because the other server waits until it can add the member.
func (e *Etcd) place(ctx context.Context) (join.AddedMember, error) {
	defer lifecycle.WaitingFor(ctx, "")
	lifecycle.WaitingFor(ctx, "a place in the cluster's etcd")
	told := ""
	for {
		added, err := e.Others.AddMember(ctx, join.AddMember{Name: e.Name, PeerURL: e.peerURL()})
		if err == nil {
			return added, nil
		}
		if exitcode.ClassOf(err) == exitcode.Removed {
			return added, err
		}
		lifecycle.WaitingFor(ctx, "a place in the cluster's etcd, last: "+err.Error())
		if err.Error() != told {
			told = err.Error()
			logrus.WithField("component", "etcd").WithError(err).Warn("there is no place in the cluster's etcd yet")
		}
		if lifecycle.Sleep(ctx, placeRetry) != nil {
			return added, fmt.Errorf("waiting for a place in the cluster's etcd: %w, last: %w", context.Cause(ctx), err)
		}
	}
}

const placeRetry = 500 * time.Millisecond

// stillMember calls stop with errRemoved if this is no member of the cluster any more.
func (l life) stillMember(ctx context.Context, stop context.CancelCauseFunc) {
	if l.removed(ctx, l.server.Server.MemberID().String()) {
		stop(errRemoved)
	}
}

// removed asks the other servers whether the cluster has no member with this ID. They cannot answer while it has no leader, so the request is repeated
// until ctx is done, and then nothing is known: false.
func (e *Etcd) removed(ctx context.Context, id string) bool {
	for pause := time.Second; ; pause = min(2*pause, 10*time.Second) {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		members, err := e.Others.Members(try)
		cancel()
		if err == nil {
			return !slices.ContainsFunc(members, func(m join.Member) bool { return m.ID == id })
		}
		if lifecycle.Sleep(ctx, pause) != nil {
			return false
		}
	}
}

// differs is the beginning of the error of a member whose data is not that of its peers at the same revision, with its ID: corrupt.go of etcdserver.
var differs = regexp.MustCompile(`^([0-9a-f]+) found data inconsistency with peers`)

// askPatience is how long a member whose data differs asks whether it is one.
const askPatience = 30 * time.Second

// leftBehind reports whether a member did not start because the cluster went on without it from an earlier revision, after coracle reset-quorum. etcd compares the data
// before it hears that the member was removed.
func (e *Etcd) leftBehind(ctx context.Context, err error) bool {
	found := differs.FindStringSubmatch(err.Error())
	if found == nil || e.Others == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	return e.removed(ctx, found[1])
}

// moveAside renames the data directory of a removed member. It replaces data that was moved aside before.
func (e *Etcd) moveAside() error {
	kept := filepath.Join(e.Dir, "removed") // it may write nowhere else
	if err := os.RemoveAll(kept); err != nil {
		return fmt.Errorf("removing the data that was moved aside before: %w", err)
	}
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return fmt.Errorf("moving the data of the removed member aside: %w", err)
	}
	for _, name := range []string{"member", filepath.Base(e.peersMark())} {
		if err := os.Rename(filepath.Join(e.Dir, name), filepath.Join(kept, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("moving the data of the removed member aside: %w", err)
		}
	}
	logrus.WithField("component", "etcd").WithField("kept", kept).
		Warn("the cluster has removed this server's member: its data is moved aside, and it joins anew")
	return nil
}

// peersMark is the file in the data directory that records that the member has had peers.
func (e *Etcd) peersMark() string { return filepath.Join(e.Dir, "peers") }

func (e *Etcd) rememberPeers() error {
	if err := atomicfile.Write(e.peersMark(), nil, 0o600); err != nil {
		return fmt.Errorf("remembering that etcd has other members: %w", err)
	}
	return nil
}

// hadPeers reports whether the peer port was open in an earlier run.
func (e *Etcd) hadPeers() bool {
	return paths.Exists(e.peersMark())
}
