package certificates

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

func TestAgentRenewsAtTwoThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		var renewals, broken atomic.Int32
		var issued atomic.Value
		issued.Store(time.Now())
		since := func() time.Time { return issued.Load().(time.Time) }
		log, _ := logtest.NewNullLogger()
		reachable := make(chan struct{})
		r := AgentRenewal{
			Due: func() (time.Time, time.Time, error) { return since().Add(year * 2 / 3), since().Add(year), nil },
			Renew: func(context.Context) error {
				if broken.Load() > 0 {
					broken.Add(-1)
					return errors.New("no server answers")
				}
				issued.Store(time.Now())
				renewals.Add(1)
				return nil
			},
			Reachable: reachable, Log: log, clockSet: make(chan struct{}),
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx, func() {}) }()
		time.Sleep(year)
		synctest.Wait()
		if renewals.Load() != 0 {
			t.Error("renewed before there was a server")
		}
		issued.Store(time.Now())
		close(reachable)
		time.Sleep(year*2/3 - time.Hour)
		synctest.Wait()
		if renewals.Load() != 0 {
			t.Error("renewed early")
		}
		broken.Store(3)
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if renewals.Load() != 1 || broken.Load() != 0 {
			t.Errorf("%d renewals after three failures, %d are left", renewals.Load(), broken.Load())
		}
		time.Sleep(3 * year)
		synctest.Wait()
		if left := time.Until(since().Add(year)); left < year/4 {
			t.Errorf("%s are left after three years", left)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
