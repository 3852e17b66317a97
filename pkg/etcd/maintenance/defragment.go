package maintenance

import (
	"context"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	if k.triedInVain() {
		return nil
	}
	if len(s.Members) == 1 {
		_, err := k.defragmentNow(ctx, s)
		return err
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
		_, err = k.defragmentNow(ctx, s)
		return err
	})
	return err
}

// triedInVain reports whether it is too early for another defragmentation.
func (k *checker) triedInVain() bool {
	return !k.fruitless.IsZero() && time.Since(k.fruitless) < tryEvery
}

// defragmentNow defragments this server's database and returns the status afterwards.
func (k *checker) defragmentNow(ctx context.Context, before members.Status) (after members.Status, err error) {
	began := time.Now()
	k.fruitless = began
	if err := k.Members.Defragment(ctx); err != nil {
		if status.Code(err) == codes.Unavailable { // a backup copies the database, or etcd does not answer: nothing was tried
			k.fruitless = time.Time{}
		}
		return after, err
	}
	took := time.Since(began).Round(time.Millisecond)
	if after, err = k.Members.Own(ctx); err != nil {
		return after, err
	}
	k.wasted = 0
	if freed := before.Size - after.Size; 2*freed >= before.Size-before.InUse {
		k.fruitless = time.Time{}
	}
	logrus.WithField("component", "etcd-maintenance").WithField("took", took).
		Infof("defragmented etcd's database of %d MiB, of which %d MiB were in use: it has %d MiB now", before.Size>>20, before.InUse>>20, after.Size>>20)
	return after, nil
}
