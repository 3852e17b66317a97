package nodecert

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

func TestRenewsAtTwoThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year = 365 * 24 * time.Hour
		issued, renewals, broken := time.Now(), 0, 0
		log, _ := logtest.NewNullLogger()
		reachable := make(chan struct{})
		r := Renewal{
			Due: func() (time.Time, time.Time, error) { return issued.Add(year * 2 / 3), issued.Add(year), nil },
			Renew: func(context.Context) error {
				if broken > 0 {
					broken--
					return errors.New("no server answers")
				}
				issued = time.Now()
				renewals++
				return nil
			},
			Reachable: reachable, Log: log,
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx, func() {}) }()
		time.Sleep(year)
		if renewals != 0 {
			t.Error("renewed before there was a server")
		}
		issued = time.Now()
		close(reachable)
		time.Sleep(year*2/3 - time.Hour)
		synctest.Wait()
		if renewals != 0 {
			t.Error("renewed early")
		}
		broken = 3
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if renewals != 1 || broken != 0 {
			t.Errorf("%d renewals after three failures, %d are left", renewals, broken)
		}
		time.Sleep(3 * year)
		if left := time.Until(issued.Add(year)); left < year/4 {
			t.Errorf("%s are left after three years", left)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
