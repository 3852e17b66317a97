package maintenance

import (
	"context"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// defragment frees unused space if there is much. It does so on one server at a time, while all others answer, and on the leader last, after
// the leadership has moved.
func (k *checker) defragment(ctx context.Context, s members.Status) error {
	waste := s.Size - s.InUse
	if waste < minWaste || 2*waste < s.Size || len(s.Alarms) > 0 {
		k.wasted = 0
		return nil
	}
	if len(s.Members) == 1 {
		return k.defragmentNow(ctx, s)
	}
	k.wasted++
	leads := slices.ContainsFunc(s.Members, func(m members.MemberStatus) bool { return m.Self && m.Leader })
	if leads && k.wasted <= len(s.Members) {
		return nil // the others first
	}
	_, err := k.Turn(ctx, func(ctx context.Context) error {
		now, err := k.Members.Status(ctx)
		if err != nil || slices.ContainsFunc(now.Members, func(m members.MemberStatus) bool { return !m.Answers || m.Learner }) {
			return err
		}
		if leads {
			other := slices.IndexFunc(now.Members, func(m members.MemberStatus) bool { return !m.Self })
			if err := k.Members.Lead(ctx, now.Members[other].ID); err != nil {
				return err
			}
		}
		return k.defragmentNow(ctx, s)
	})
	return err
}

func (k *checker) defragmentNow(ctx context.Context, before members.Status) error {
	began := time.Now()
	if err := k.Members.Defragment(ctx); err != nil {
		return err
	}
	k.wasted = 0
	logrus.WithField("component", "etcd-maintenance").WithField("took", time.Since(began).Round(time.Millisecond)).
		Infof("defragmented etcd's database of %d MiB, of which %d MiB were in use", before.Size>>20, before.InUse>>20)
	return nil
}
