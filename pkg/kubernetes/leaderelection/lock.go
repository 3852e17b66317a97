package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// releaseTimeout limits how long a stopping server tries to release the Lease. An unreleased Lease expires.
const releaseTimeout = 2 * time.Second

// stopWhenTaken is a lock that calls stop as soon as it reads that another server holds the Lease. Without it a machine that
// was frozen would lead beside that server until renewDeadline is over.
type stopWhenTaken struct {
	resourcelock.Interface
	leading <-chan struct{} // closed when this server leads
	stop    func()
}

// Get reads the Lease. The elector calls it when a renewal failed.
func (w stopWhenTaken) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := w.Interface.Get(ctx)
	select {
	case <-w.leading:
		if err == nil && record.HolderIdentity != "" && record.HolderIdentity != w.Identity() {
			w.stop()
		}
	default:
	}
	return record, raw, err
}

// lost is the error of a leader that no longer holds the Lease; leader is the holder as last seen.
func (l *Leadership) lost(leader string) error {
	if leader != l.Server && leader != "" {
		return fmt.Errorf("server %s leads now", leader)
	}
	return fmt.Errorf("the Lease %s/%s could not be renewed for %s, and another server may take it", namespace, lease, renewDeadline)
}

// release gives the Lease back at a stop, so that another server leads at its next try. The elector's own ReleaseOnCancel
// would also release after a failed renewal, while the components behind the lead still work.
func release(lock resourcelock.Interface, server string) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	record, _, err := lock.Get(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("giving the lead back: %w", err)
	case record.HolderIdentity != server:
		return errors.New("giving the lead back: it is " + record.HolderIdentity + "'s already")
	}
	now := metav1.Now()
	return lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
	})
}
