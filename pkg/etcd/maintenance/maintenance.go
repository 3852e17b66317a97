// Package maintenance maintains this server's member of etcd: it defragments the database, disarms alarms whose cause is
// gone, and reports the alarms that need a person.
package maintenance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/etcd/members"
)

// Maintenance is the component. Every server with a member of etcd runs it.
type Maintenance struct {
	Members Members
	// Turn calls work unless another server does its own at this moment, and reports whether it called it.
	Turn func(ctx context.Context, work func(context.Context) error) (bool, error)
	// Tell is called with the present and the former alarms whenever they change. They go into status and Events.
	Tell func(ctx context.Context, alarms, before []Alarm)
	// Every is the time between two checks; zero is a minute.
	Every time.Duration
}

// Members is what maintenance needs of etcd's client.
type Members interface {
	Own(ctx context.Context) (members.Status, error)
	Status(ctx context.Context) (members.Status, error)
	Compact(ctx context.Context) error
	CompactBacklog(ctx context.Context, keep int64) (int64, error)
	Defragment(ctx context.Context) error
	Disarm(ctx context.Context, alarm members.Alarm) error
	Lead(ctx context.Context, id string) error
}

// Alarm is an alarm of etcd, with advice for people.
type Alarm struct {
	members.Alarm
	Advice string `json:"advice"`
}

const (
	minWaste  = 64 << 20 // unused bytes that are worth a defragmentation, if they are also more than half of the file
	fullShare = 0.9      // of the quota; above it the database counts as full
	// keepRevisions is how many revisions remain when a start compacts: as many as an idle server writes in an hour or two.
	keepRevisions = 5000

	checkEvery = time.Minute
	tryEvery   = time.Hour       // after a defragmentation that failed or freed nothing: the member does not answer meanwhile
	timeout    = 2 * time.Minute // of one check with all its work
)

// The kinds of alarms.
const (
	noSpace = "NOSPACE"
	corrupt = "CORRUPT"
)

// Run works until ctx is done. It is ready at once.
func (c Maintenance) Run(ctx context.Context, ready func()) error {
	if c.Every == 0 {
		c.Every = checkEvery
	}
	ready()
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	k := checker{Maintenance: c}
	for {
		try, cancel := context.WithTimeout(ctx, timeout)
		if err := k.once(try); err != nil && ctx.Err() == nil {
			logrus.WithField("component", "etcd-maintenance").WithError(err).Warn("maintaining etcd")
		}
		cancel()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// checker is a Maintenance with what it remembers from one check to the next.
type checker struct {
	Maintenance
	told   []Alarm
	wasted int // checks in a row that found enough unused space
	// fruitless is when a defragmentation began that failed or freed nothing; zero after one that did.
	fruitless time.Time
	caughtUp  bool // the backlog of former processes is compacted
}

// once does one check and the work that it finds.
func (k *checker) once(ctx context.Context) error {
	s, err := k.Members.Own(ctx)
	if err != nil {
		return err
	}
	k.tell(ctx, s)
	if len(s.Alarms) > 0 {
		if s, err = k.disarm(ctx, s); err != nil {
			return err
		}
		k.tell(ctx, s)
	}
	return errors.Join(k.catchUp(ctx, s), k.defragment(ctx, s))
}

// catchUp compacts once what former processes have left, if this is the only server. An API server compacts every five minutes, but not before it has run for
// ten: on a machine that is never switched on for so long, the database would grow to its limit, and its index in memory too.
func (k *checker) catchUp(ctx context.Context, s members.Status) error {
	if k.caughtUp || len(s.Members) > 1 || len(s.Alarms) > 0 { // compacting begins with a write, which an alarm prevents
		return nil
	}
	removed, err := k.Members.CompactBacklog(ctx, keepRevisions)
	if err != nil {
		return err
	}
	k.caughtUp = true
	if removed > 0 {
		logrus.WithField("component", "etcd-maintenance").Infof("compacted etcd's database: removed %d old revisions that former processes have left", removed)
	}
	return nil
}

// tell reports the alarms if they have changed.
func (k *checker) tell(ctx context.Context, s members.Status) {
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

// disarm ends the alarms that it can, and returns the status afterwards.
func (k *checker) disarm(ctx context.Context, s members.Status) (members.Status, error) {
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

// makeRoom compacts a full database, and defragments it if that ends the alarm. More needs a person. Kubernetes cannot compact a full database itself,
// because its compaction begins with a write.
func (k *checker) makeRoom(ctx context.Context, a members.Alarm, s members.Status) error {
	if !full(s.Size, s.Quota) {
		return k.Members.Disarm(ctx, a)
	}
	if err := k.Members.Compact(ctx); err != nil {
		logrus.WithField("component", "etcd-maintenance").WithError(err).Debug("it may be compacted already")
	}
	if err := k.stagger(ctx, s); err != nil {
		return err
	}
	s, err := k.Members.Own(ctx)
	if err != nil || full(s.InUse, s.Quota) || k.triedInVain() {
		return err
	}
	after, err := k.defragmentNow(ctx, s)
	if err != nil || full(after.Size, after.Quota) {
		return err
	}
	return k.Members.Disarm(ctx, a)
}

func full(size, quota int64) bool { return float64(size) > fullShare*float64(quota) }

// stagger delays members that became full at the same time by different times. A lock in the cluster would be a write, which
// a full database refuses.
func (k *checker) stagger(ctx context.Context, s members.Status) error {
	i := slices.IndexFunc(s.Members, func(m members.MemberStatus) bool { return m.Self })
	return lifecycle.Sleep(ctx, time.Duration(max(i, 0))*k.Every/6)
}
