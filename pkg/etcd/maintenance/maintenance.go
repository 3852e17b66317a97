// Package maintenance looks after this server's member of etcd: it gives unused space of the database back, ends alarms
// when their cause is gone, and tells people of those that need them.
package maintenance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// Care is the component. Every server with a member of etcd runs it.
type Care struct {
	Members Members
	// Turn calls work when no other server does the same, and reports whether it did.
	Turn func(ctx context.Context, work func(context.Context) error) (bool, error)
	// Tell is told of the alarms whenever they change, and of those before: for status and as Events.
	Tell func(ctx context.Context, alarms, before []Alarm)
	// Every is how often it looks; zero is a minute.
	Every time.Duration
}

// Members are etcd's.
type Members interface {
	Own(ctx context.Context) (members.Status, error)
	Status(ctx context.Context) (members.Status, error)
	Compact(ctx context.Context) error
	Defragment(ctx context.Context) error
	Disarm(ctx context.Context, alarm members.Alarm) error
	Lead(ctx context.Context, id string) error
}

// Alarm is one of etcd's, with what people can do.
type Alarm struct {
	members.Alarm
	Advice string `json:"advice"`
}

// What is worth a defragmentation, and when a database is no longer full.
const (
	wasteAtLeast = 64 << 20 // bytes, and more than half
	fullShare    = 0.9      // of the limit

	look     = time.Minute
	patience = 2 * time.Minute // of all that is done at once
)

// The kinds of alarms.
const (
	noSpace = "NOSPACE"
	corrupt = "CORRUPT"
)

// Run works until ctx is done. It is ready at once.
func (c Care) Run(ctx context.Context, ready func()) error {
	if c.Every == 0 {
		c.Every = look
	}
	ready()
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	k := keeper{Care: c}
	for {
		try, cancel := context.WithTimeout(ctx, patience)
		if err := k.once(try); err != nil && ctx.Err() == nil {
			logrus.WithField("component", "etcd-care").WithError(err).Warn("looking after etcd")
		}
		cancel()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// keeper is what Care remembers from one look to the next.
type keeper struct {
	Care
	told   []Alarm
	wasted int // how many looks in a row have found waste
}

// once looks, and does what there is to do.
func (k *keeper) once(ctx context.Context) error {
	s, err := k.Members.Own(ctx)
	if err != nil {
		return err
	}
	k.tell(ctx, s)
	if len(s.Alarms) > 0 {
		if s, err = k.cure(ctx, s); err != nil {
			return err
		}
		k.tell(ctx, s)
	}
	return k.defragment(ctx, s)
}

// tell says what is wrong if that has changed.
func (k *keeper) tell(ctx context.Context, s members.Status) {
	var now []Alarm
	for _, a := range s.Alarms {
		now = append(now, Alarm{a, advice(a, s)})
	}
	if slices.Equal(now, k.told) {
		return
	}
	before := k.told
	k.told = now
	k.Tell(ctx, now, before)
}

func advice(a members.Alarm, s members.Status) string {
	switch a.Kind {
	case noSpace:
		return fmt.Sprintf("etcd's database is full and nothing can be written. It is compacted now; if that is not enough, delete what "+
			"is not needed, or raise the limit of %d MiB with --etcd-arg quota-backend-bytes=BYTES on every server", s.Quota>>20)
	case corrupt:
		return fmt.Sprintf("the data of %s differs from the other servers', and nothing is answered any more: run coracle etcd remove --force %[1]s "+
			"on another server, and it joins again with their data", a.Member)
	}
	return "see etcd's documentation"
}

// cure ends what alarms it can, and returns the status afterwards.
func (k *keeper) cure(ctx context.Context, s members.Status) (members.Status, error) {
	for _, a := range s.Alarms {
		member := slices.IndexFunc(s.Members, func(m members.MemberStatus) bool { return m.ID == a.ID })
		switch {
		case member < 0: // it was removed, and its data with it
			if err := k.Members.Disarm(ctx, a); err != nil {
				return s, err
			}
		case a.Kind == noSpace && s.Members[member].Self:
			if err := k.makeRoom(ctx, a, s); err != nil {
				return s, err
			}
		}
	}
	return k.Members.Own(ctx)
}

// makeRoom compacts the database and gives the space back, which is all that can be done without people: Kubernetes
// itself cannot compact any more, because that is a write.
func (k *keeper) makeRoom(ctx context.Context, a members.Alarm, s members.Status) error {
	if !full(s) {
		return k.Members.Disarm(ctx, a)
	}
	if err := k.Members.Compact(ctx); err != nil {
		logrus.WithField("component", "etcd-care").WithError(err).Debug("it may be compacted already")
	}
	if err := k.stagger(ctx, s); err != nil {
		return err
	}
	if err := k.Members.Defragment(ctx); err != nil {
		return err
	}
	after, err := k.Members.Own(ctx)
	if err != nil {
		return err
	}
	logrus.WithField("component", "etcd-care").Warnf("etcd's database was full: it had %d MiB and has %d MiB now, of at most %d MiB",
		s.Size>>20, after.Size>>20, after.Quota>>20)
	if full(after) {
		return nil
	}
	return k.Members.Disarm(ctx, a)
}

func full(s members.Status) bool { return float64(s.Size) > fullShare*float64(s.Quota) }

// stagger has members that became full at the same time wait for each other. A lock in the cluster would be a write.
func (k *keeper) stagger(ctx context.Context, s members.Status) error {
	i := slices.IndexFunc(s.Members, func(m members.MemberStatus) bool { return m.Self })
	return lifecycle.Sleep(ctx, time.Duration(max(i, 0))*k.Every/6)
}
