package helmcharts

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"helm.sh/helm/v4/pkg/release/common"
)

// TestSuspect: a chart that may have ended the process leaves people time to delete it.
func TestSuspect(t *testing.T) {
	const now = "now"
	for _, tt := range []struct {
		name, attempted, reason string
		history                 []revision
		want                    time.Duration
	}{
		{"new", "", "", nil, 0},
		{"ended before there was a revision", now, reasonWorking, nil, afterCrash},
		{"the same of an upgrade", now, reasonWorking, []revision{{version: 1, status: common.StatusDeployed, hash: "old"}}, afterCrash},
		{"rendered", now, reasonWorking, []revision{{version: 1, status: common.StatusPendingInstall, hash: now}}, 0},
		{"changed since", "old", reasonWorking, nil, 0},
		{"failed", now, reasonFailed, nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := logrus.New()
				log.SetOutput(io.Discard)
				c := newController(HelmCharts{}, nil, log)
				defer c.queue.ShutDown()
				ch := &chart{Status: chartStatus{Attempted: tt.attempted, Conditions: []condition{{Type: readyType, Reason: tt.reason}}}}
				w := wish{hash: now, history: tt.history}
				if got := c.suspect(ch, w); got != tt.want {
					t.Errorf("waits %s, want %s", got, tt.want)
				}
				time.Sleep(tt.want / 2)
				if got := c.suspect(ch, w); got != tt.want/2 {
					t.Errorf("then waits %s, want %s", got, tt.want/2)
				}
				time.Sleep(tt.want / 2)
				if got := c.suspect(ch, w); got > 0 {
					t.Errorf("still waits %s", got)
				}
			})
		})
	}
}
