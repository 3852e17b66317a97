package members

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

// Status is how etcd is doing, as far as one member can tell.
type Status struct {
	Members []MemberStatus `json:"members"`
	// Quorum says that the members agree with each other at this moment; if not, nothing can be written.
	Quorum bool `json:"quorum"`
	// The rest is of the local member.
	Version string  `json:"version"`
	Term    uint64  `json:"term"`
	Index   uint64  `json:"index"`  // of the last entry of the log that it has applied
	Size    int64   `json:"size"`   // of the database, in bytes
	InUse   int64   `json:"inUse"`  // of it; the rest can be given back by defragmentation
	Quota   int64   `json:"quota"`  // at this size etcd stops writing
	Alarms  []Alarm `json:"alarms"` // of all members
}

// MemberStatus is one member's.
type MemberStatus struct {
	join.Member
	Self    bool `json:"self,omitempty"` // the one that was asked
	Leader  bool `json:"leader,omitempty"`
	Answers bool `json:"answers"` // it talks to the one that was asked
}

// Alarm is why etcd refuses writes.
type Alarm struct {
	Member string `json:"member"` // its name, or its identity if it is no member any more
	ID     string `json:"id"`     // of the member
	Kind   string `json:"kind"`   // NOSPACE or CORRUPT
}

// Own is the status without asking anybody else: Quorum and what others answer are not told.
func (m *Members) Own(ctx context.Context) (s Status, err error) {
	err = m.do(func(client *clientv3.Client) error {
		s, err = m.own(ctx, client)
		return err
	})
	return s, err
}

func (m *Members) own(ctx context.Context, client *clientv3.Client) (Status, error) {
	own, err := client.Maintenance.Status(ctx, "unix://"+m.Socket)
	if err != nil {
		return Status{}, fmt.Errorf("asking etcd for its status: %w", explain(err))
	}
	all, err := list(ctx, client, clientv3.WithSerializable())
	if err != nil {
		return Status{}, err
	}
	s := Status{Version: own.Version, Term: own.RaftTerm, Index: own.RaftAppliedIndex, Size: own.DbSize, InUse: own.DbSizeInUse, Quota: own.DbSizeQuota}
	for _, one := range all.Members {
		s.Members = append(s.Members, MemberStatus{Member: describe(one), Self: one.ID == own.Header.MemberId, Leader: one.ID == own.Leader})
	}
	s.Alarms = alarms(own.Errors, s.Members)
	return s, nil
}

// Status asks the local member, and whether the others answer.
func (m *Members) Status(ctx context.Context) (s Status, err error) {
	err = m.do(func(client *clientv3.Client) error {
		if s, err = m.own(ctx, client); err != nil {
			return err
		}
		var asking sync.WaitGroup
		for i, one := range s.Members {
			asking.Go(func() { s.Members[i].Answers = one.Self || m.Answers(ctx, one.PeerURLs) })
		}
		asking.Go(func() {
			try, cancel := context.WithTimeout(ctx, quorumTimeout)
			defer cancel()
			_, err := client.MemberList(try)
			s.Quorum = err == nil
		})
		asking.Wait()
		return nil
	})
	return s, err
}

// quorumTimeout is how long members may take to agree.
const quorumTimeout = connectTimeout * 3 / 2

// Defragment gives unused space of the local member's database back to the file system. The member answers nothing
// meanwhile: some seconds for each gigabyte.
func (m *Members) Defragment(ctx context.Context) error {
	return m.do(func(client *clientv3.Client) error {
		if _, err := client.Defragment(ctx, "unix://"+m.Socket); err != nil {
			return fmt.Errorf("defragmenting etcd's database: %w", explain(err))
		}
		return nil
	})
}
