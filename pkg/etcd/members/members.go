// Package members lists, adds and removes members of the cluster's etcd: on a server through the socket of its own member (Members), and from
// a joining server through the API of the others (Remote). Package member runs a member.
package members

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Members is a client of the local member. Its exported fields are set before use. Methods are safe for concurrent use.
type Members struct {
	Socket string // of the local member
	// CA, Cert and Key are the files for TLS between members.
	CA, Cert, Key string

	adding   sync.Mutex // held while the members are listed and one is added
	mu       sync.Mutex
	learning map[uint64]time.Time // learners, and when each was seen first
}

// Timings of Add.
const (
	addPatience  = 15 * time.Second // how long Add waits until the cluster can take a member
	addPause     = 100 * time.Millisecond
	addTry       = 4 * time.Second // limit of one try: of two concurrent changes etcd silently drops one
	learnerGrace = time.Minute     // how long a learner that does not answer may block other joins
)

// Dial connects to the local member. The caller closes the client.
func (m *Members) Dial() (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + m.Socket}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return client, nil
}

// List returns the present members, by a linearizable read.
func (m *Members) List(ctx context.Context) (members []join.Member, err error) {
	err = m.do(func(client *clientv3.Client) error {
		got, err := list(ctx, client)
		if err != nil {
			return err
		}
		for _, one := range got.Members {
			members = append(members, describe(one))
		}
		return nil
	})
	return members, err
}

func list(ctx context.Context, client *clientv3.Client, opts ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	got, err := client.MemberList(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("listing etcd's members: %w", explain(err))
	}
	return got, nil
}

func describe(m *pb.Member) join.Member {
	return join.Member{ID: ID(m.ID), Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.IsLearner}
}

// ID formats a member's ID as etcdctl does.
func ID(id uint64) string { return strconv.FormatUint(id, 16) }

// Add adds a learner. A member with the same name or URL is removed first: it is the same server before it lost its data. Add waits up to
// addPatience while another server is joining or the cluster is unhealthy.
func (m *Members) Add(ctx context.Context, new join.AddMember) (join.AddedMember, error) {
	none := join.AddedMember{}
	if err := check(new); err != nil {
		return none, err
	}
	client, err := m.Dial()
	if err != nil {
		return none, err
	}
	defer client.Close()
	until := time.Now().Add(addPatience)
	for {
		// One at a time: etcd checks the number of learners only when it applies an addition, and a member that replays the log later
		// would dial refused learners forever.
		m.adding.Lock()
		try, cancel := context.WithTimeout(ctx, addTry)
		added, err := m.tryAdd(try, client, new)
		m.adding.Unlock()
		dropped := try.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !dropped && !retriable(err) || time.Now().After(until) {
			return added, err
		}
		if lifecycle.Sleep(ctx, addPause) != nil {
			return none, err
		}
	}
}

func check(new join.AddMember) error {
	u, err := url.Parse(new.PeerURL)
	if err != nil || u.Scheme != "https" || u.Port() == "" || new.Name == "" || strings.ContainsAny(new.Name, "=,") {
		return fmt.Errorf("a member needs a name and a URL like https://IP:2380, not %q and %q", new.Name, new.PeerURL)
	}
	return nil
}

func (m *Members) tryAdd(ctx context.Context, client *clientv3.Client, new join.AddMember) (join.AddedMember, error) {
	none := join.AddedMember{}
	got, err := list(ctx, client)
	if err != nil {
		return none, err
	}
	for _, one := range got.Members {
		switch {
		case one.Name == new.Name || slices.Contains(one.PeerURLs, new.PeerURL):
			if one.ID == got.Header.MemberId {
				return none, fmt.Errorf("%s at %s is this server: give the one that joins another name with --node-name", one.Name, new.PeerURL)
			}
			if err := m.remove(ctx, client, one, got); err != nil {
				return none, err
			}
		case one.IsLearner:
			if err := m.yieldTo(ctx, client, one, got); err != nil {
				return none, err
			}
		}
	}
	added, err := client.MemberAddAsLearner(ctx, []string{new.PeerURL})
	if err != nil {
		return none, fmt.Errorf("adding a member to etcd: %w", explain(err))
	}
	return join.AddedMember{ID: ID(added.Member.ID), InitialCluster: initialCluster(added.Members, added.Member.ID, new.Name)}, nil
}

func initialCluster(members []*pb.Member, own uint64, name string) string {
	var parts []string
	for _, one := range members {
		label := one.Name
		switch {
		case one.ID == own:
			label = name
		case label == "":
			label = ID(one.ID)
		}
		for _, u := range one.PeerURLs {
			parts = append(parts, label+"="+u)
		}
	}
	return strings.Join(parts, ",")
}

// errBusy is the error while another server is joining.
var errBusy = errors.New("etcd takes one new member at a time")

// yieldTo returns errBusy because of another server's learner. If that server has not answered for learnerGrace, the learner is removed
// instead.
func (m *Members) yieldTo(ctx context.Context, client *clientv3.Client, learner *pb.Member, all *clientv3.MemberListResponse) error {
	busy := fmt.Errorf("%w, and %s is still catching up", errBusy, Label(learner))
	m.mu.Lock()
	if m.learning == nil {
		m.learning = map[uint64]time.Time{}
	}
	first, seen := m.learning[learner.ID]
	if !seen {
		m.learning[learner.ID] = time.Now()
	}
	m.mu.Unlock()
	if !seen || time.Since(first) < learnerGrace || m.Answers(ctx, learner.PeerURLs) {
		return busy
	}
	return m.remove(ctx, client, learner, all)
}

// Label is the name of a member, or its URL before it has a name.
func Label(m *pb.Member) string {
	if m.Name != "" {
		return m.Name
	}
	return strings.Join(m.PeerURLs, ",")
}

// retriable reports whether the same request may succeed soon.
func retriable(err error) bool {
	return errors.Is(err, errBusy) || errors.Is(err, rpctypes.ErrUnhealthy) || errors.Is(err, rpctypes.ErrTooManyLearners)
}
