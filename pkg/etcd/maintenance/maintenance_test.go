package maintenance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	os.Exit(m.Run())
}

const mib = 1 << 20

// etcd is a member that does what it is told.
type etcd struct {
	status members.Status
	did    []string
	held   bool // another server has the turn
	stuck  bool // defragmentation frees nothing
	fails  bool // defragmentation fails
	copied int  // so many times a backup copies the database
	busy   int  // so many times the backlog cannot be compacted
	caught int  // how often its compaction was tried
}

func (e *etcd) Own(context.Context) (members.Status, error) {
	s := e.status
	s.Alarms = slices.Clone(s.Alarms)
	return s, nil
}
func (e *etcd) Status(ctx context.Context) (members.Status, error) { return e.Own(ctx) }

func (e *etcd) Compact(context.Context) error {
	e.did = append(e.did, "compact")
	return errors.New("mvcc: required revision has been compacted")
}

func (e *etcd) CompactBacklog(context.Context, int64) (int64, error) {
	if e.caught++; e.caught <= e.busy {
		return 0, errors.New("no leader")
	}
	return 0, nil
}

func (e *etcd) Defragment(context.Context) error {
	e.did = append(e.did, "defragment")
	if e.copied > 0 {
		e.copied--
		return fmt.Errorf("defragmenting: %w", status.Error(codes.Unavailable, "a backup copies the database: try again later"))
	}
	if e.fails {
		return errors.New("no space left on device")
	}
	if !e.stuck {
		e.status.Size = e.status.InUse
	}
	return nil
}

func (e *etcd) Disarm(_ context.Context, a members.Alarm) error {
	e.did = append(e.did, "disarm "+a.Kind+" of "+a.Member)
	e.status.Alarms = slices.DeleteFunc(slices.Clone(e.status.Alarms), func(b members.Alarm) bool { return a == b })
	return nil
}

func (e *etcd) Lead(_ context.Context, id string) error {
	e.did = append(e.did, id+" leads")
	return nil
}

func (e *etcd) turn(ctx context.Context, work func(context.Context) error) (bool, error) {
	if e.held {
		return false, nil
	}
	e.did = append(e.did, "lock")
	return true, work(ctx)
}

func cluster(self, leader string, silent ...string) (all []members.MemberStatus) {
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, members.MemberStatus{Member: join.Member{ID: id, Name: "n" + id}, Self: id == self, Leader: id == leader,
			Answers: !slices.Contains(silent, id)})
	}
	return all
}

func alone() []members.MemberStatus { return cluster("a", "a")[:1] }

func TestMaintenance(t *testing.T) {
	alarm := func(kind, id string) []members.Alarm {
		return []members.Alarm{{Member: "n" + id, ID: id, Kind: kind}}
	}
	for _, c := range []struct {
		name   string
		status members.Status
		held   bool
		looks  int
		did    string
		told   string
	}{
		{name: "nothing", status: members.Status{Members: alone(), Size: 10 * mib, InUse: mib}},
		{name: "waste", status: members.Status{Members: alone(), Size: 200 * mib, InUse: 90 * mib}, did: "defragment"},
		{name: "less than half", status: members.Status{Members: alone(), Size: 200 * mib, InUse: 110 * mib}},
		{name: "follower", status: members.Status{Members: cluster("a", "b"), Size: 200 * mib, InUse: 90 * mib}, did: "lock, defragment"},
		{name: "not its turn", status: members.Status{Members: cluster("a", "b"), Size: 200 * mib, InUse: 90 * mib}, held: true},
		{name: "one silent", status: members.Status{Members: cluster("a", "b", "c"), Size: 200 * mib, InUse: 90 * mib}, did: "lock"},
		{name: "leader waits", status: members.Status{Members: cluster("a", "a"), Size: 200 * mib, InUse: 90 * mib}, looks: 3},
		{name: "leader", status: members.Status{Members: cluster("a", "a"), Size: 200 * mib, InUse: 90 * mib}, looks: 4,
			did: "lock, b leads, defragment"},
		{name: "full of old revisions", status: members.Status{Members: alone(), Size: 200 * mib, InUse: 20 * mib, Quota: 200 * mib,
			Alarms: alarm("NOSPACE", "a")}, did: "compact, defragment, disarm NOSPACE of na", told: "It is compacted now"},
		{name: "full", status: members.Status{Members: alone(), Size: 200 * mib, InUse: 190 * mib, Quota: 200 * mib, Alarms: alarm("NOSPACE", "a")},
			looks: 3, did: "compact, compact, compact", told: "raise the limit of 200 MiB"},
		{name: "another is full", status: members.Status{Members: cluster("a", "b"), Alarms: alarm("NOSPACE", "b")}, told: "database is full"},
		{name: "raised the limit", status: members.Status{Members: alone(), Size: 200 * mib, InUse: 190 * mib, Quota: 400 * mib,
			Alarms: alarm("NOSPACE", "a")}, did: "disarm NOSPACE of na", told: "database is full"},
		{name: "corrupt", status: members.Status{Members: cluster("a", "b"), Alarms: alarm("CORRUPT", "c")}, told: "coracle etcd remove --force nc"},
		{name: "corrupt and removed", status: members.Status{Members: cluster("a", "b"), Alarms: alarm("CORRUPT", "x")}, did: "disarm CORRUPT of nx", told: "differs from"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &etcd{status: c.status, held: c.held}
				var told []string
				k := checker{Maintenance: Maintenance{Members: e, Turn: e.turn, Every: checkEvery, Tell: func(_ context.Context, alarms, _ []Alarm) {
					for _, a := range alarms {
						told = append(told, a.Advice)
					}
				}}}
				for range max(c.looks, 1) {
					if err := k.once(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if got := strings.Join(e.did, ", "); got != c.did {
					t.Errorf("it did %q, not %q", got, c.did)
				}
				if len(told) > 1 || !strings.Contains(strings.Join(told, ""), c.told) || (c.told == "") != (len(told) == 0) {
					t.Errorf("it told %q, not %q", told, c.told)
				}
			})
		})
	}
}

// TestCatchUp: the backlog is compacted once, as soon as that succeeds, and not while an alarm keeps etcd from writing.
func TestCatchUp(t *testing.T) {
	full := members.Status{Members: alone(), Size: 200 * mib, InUse: 195 * mib, Quota: 200 * mib, Alarms: []members.Alarm{{Member: "na", ID: "a", Kind: noSpace}}}
	for _, c := range []struct {
		name string
		etcd etcd
		want int
	}{
		{"at once", etcd{status: members.Status{Members: alone()}}, 1},
		{"without a leader", etcd{status: members.Status{Members: alone()}, busy: 2}, 3},
		{"full", etcd{status: full}, 0},
		{"with other servers", etcd{status: members.Status{Members: cluster("a", "b")}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), 10*checkEvery)
				defer stop()
				e := &c.etcd
				if err := (Maintenance{Members: e, Turn: e.turn, Tell: func(context.Context, []Alarm, []Alarm) {}}).Run(ctx, func() {}); err != nil {
					t.Fatal(err)
				}
				if e.caught != c.want {
					t.Errorf("tried %d times, not %d", e.caught, c.want)
				}
			})
		})
	}
}
