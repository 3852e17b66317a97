package helm

import (
	"testing"

	"helm.sh/helm/v4/pkg/release/common"
)

// TestStepAfterACrash tells a server that ended before there was a revision, and may try again, from one that ended after a
// roll-back, of which the status says nothing yet.
func TestStepAfterACrash(t *testing.T) {
	const old, now = "old", "now"
	deployed, failedNow := revision{version: 1, status: common.StatusDeployed, hash: old}, revision{version: 2, status: common.StatusFailed, hash: now}
	restored := revision{version: 3, status: common.StatusDeployed, hash: old}
	for _, tt := range []struct {
		name, attempted, reason string
		history                 []revision
		want                    step
	}{
		{"ended before there was a revision", now, reasonWorking, []revision{deployed}, upgrade},
		{"ended before the first one", now, reasonWorking, nil, install},
		{"ended after the roll-back", now, reasonWorking, []revision{deployed, failedNow, restored}, stayFailed},
		{"rolled back", now, reasonRolledBack, []revision{deployed, failedNow, restored}, stayFailed},
		{"taken back before there was a revision", old, reasonWorking, []revision{{version: 1, status: common.StatusSuperseded, hash: now}, restored}, upgrade},
		{"too large", now, reasonTooLarge, []revision{deployed}, stayFailed},
		{"too large, then changed", "other", reasonTooLarge, []revision{deployed}, upgrade},
	} {
		status := chartStatus{Attempted: tt.attempted, Conditions: []condition{{Type: readyType, Reason: tt.reason}}}
		if got := (desired{hash: now, history: tt.history}).step(status); got != tt.want {
			t.Errorf("%s: decided %s, want %s", tt.name, got, tt.want)
		}
	}
}
