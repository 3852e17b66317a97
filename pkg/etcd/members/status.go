package members

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
)

// Status is the state of etcd as one member reports it.
type Status struct {
	Members []MemberStatus `json:"members"`
	// Quorum is set if a linearizable read succeeds. Otherwise nothing can be written.
	Quorum bool `json:"quorum"`
	// The other fields are those of the local member.
	Version string  `json:"version"`
	Term    uint64  `json:"term"`
	Index   uint64  `json:"index"`  // of the last applied log entry
	Size    int64   `json:"size"`   // of the database, in bytes
	InUse   int64   `json:"inUse"`  // in bytes; defragmentation frees the rest
	Quota   int64   `json:"quota"`  // in bytes; above it etcd refuses writes
	Alarms  []Alarm `json:"alarms"` // of all members
}

// MemberStatus is the state of one member.
type MemberStatus struct {
	join.Member
	Self    bool `json:"self,omitempty"` // the one that was asked
	Leader  bool `json:"leader,omitempty"`
	Answers bool `json:"answers"` // it answers the member that was asked
}

// Alarm is a reason why etcd refuses writes.
type Alarm struct {
	Member string `json:"member"` // its name, or its ID if it was removed
	ID     string `json:"id"`     // of the member
	Kind   string `json:"kind"`   // NOSPACE or CORRUPT
}

// Own returns the status without requests to other members: Quorum and Answers are not set.
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

// Status returns the status with Quorum and Answers.
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

// quorumTimeout limits the linearizable read.
const quorumTimeout = connectTimeout * 3 / 2

// Defragment frees the unused space of the local member's database. The member does not answer meanwhile, for some seconds per gigabyte.
func (m *Members) Defragment(ctx context.Context) error {
	return m.do(func(client *clientv3.Client) error {
		if _, err := client.Defragment(ctx, "unix://"+m.Socket); err != nil {
			return fmt.Errorf("defragmenting etcd's database: %w", explain(err))
		}
		return nil
	})
}
