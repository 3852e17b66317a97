package helm

import (
	"fmt"
	"testing"

	"helm.sh/helm/v4/pkg/release/common"
)

func TestDecide(t *testing.T) {
	const old, now = "old", "now"
	rev := func(status common.Status, hash string) revision {
		return revision{version: 1, status: status, hash: hash}
	}
	one := func(status common.Status, hash string) []revision { return []revision{rev(status, hash)} }
	after := func(status common.Status, hash string) []revision {
		return []revision{rev(common.StatusSuperseded, old), rev(common.StatusDeployed, old), rev(status, hash)}
	}
	for _, tt := range []struct {
		name      string
		history   []revision
		attempted string
		policy    failurePolicy
		want      decision
	}{
		{"nothing is there", nil, "", policyUnset, decision{install, false}},
		{"nothing is there after a failure that left nothing", nil, now, policyUnset, decision{install, false}},
		{"in force", one(common.StatusDeployed, now), now, policyUnset, decision{stay, false}},
		{"in force, status lost", one(common.StatusDeployed, now), "", policyUnset, decision{stay, false}},
		{"changed", one(common.StatusDeployed, old), old, policyUnset, decision{upgrade, false}},
		{"somebody else's release", one(common.StatusDeployed, ""), "", policyUnset, decision{upgrade, false}},
		{"rolled back", after(common.StatusDeployed, old), now, policyUnset, decision{stayFailed, false}},
		{"rolled back, then changed", after(common.StatusDeployed, old), "other", policyUnset, decision{upgrade, false}},
		{"uninstalled and kept", one(common.StatusUninstalled, now), now, policyUnset, decision{install, false}},
		{"install interrupted", one(common.StatusPendingInstall, now), now, policyUnset, decision{reinstall, false}},
		{"install interrupted, abort", one(common.StatusPendingInstall, now), now, policyAbort, decision{reinstall, false}},
		{"uninstall interrupted", one(common.StatusUninstalling, now), now, policyUnset, decision{reinstall, false}},
		{"upgrade interrupted", after(common.StatusPendingUpgrade, now), now, policyUnset, decision{upgrade, true}},
		{"roll-back interrupted", after(common.StatusPendingRollback, old), now, policyUnset, decision{rollback, true}},
		{"roll-back interrupted, nothing good", one(common.StatusPendingRollback, old), now, policyUnset, decision{upgrade, true}},
		{"roll-back failed", []revision{{1, common.StatusSuperseded, old, ""}, {2, common.StatusSuperseded, now, ""}, {3, common.StatusFailed, old, ""}}, now, policyUnset, decision{rollback, false}},
		{"good once, and failed as the same", []revision{{1, common.StatusSuperseded, now, ""}, {2, common.StatusFailed, now, ""}}, now, policyUnset, decision{upgrade, false}},
		{"a change taken back before it was rolled back", []revision{{1, common.StatusDeployed, now, ""}, {2, common.StatusFailed, "other", ""}}, "", policyUnset, decision{upgrade, false}},
		{"taken back after the roll-back failed too", []revision{{1, common.StatusDeployed, now, ""}, {2, common.StatusFailed, "other", ""}, {3, common.StatusFailed, now, ""}},
			"other", policyRollback, decision{upgrade, false}},
		{"first install failed", one(common.StatusFailed, now), now, policyUnset, decision{reinstall, false}},
		{"first install failed, rollback", one(common.StatusFailed, now), now, policyRollback, decision{reinstall, false}},
		{"first install failed, abort", one(common.StatusFailed, now), now, policyAbort, decision{stayFailed, false}},
		{"first install failed, retry", one(common.StatusFailed, now), now, policyRetry, decision{upgrade, false}},
		{"upgrade failed and was not rolled back", after(common.StatusFailed, now), now, policyUnset, decision{rollback, false}},
		{"upgrade failed, then changed", after(common.StatusFailed, old), old, policyUnset, decision{upgrade, false}},
		{"upgrade failed, reinstall", after(common.StatusFailed, now), now, policyReinstall, decision{reinstall, false}},
		{"upgrade failed, retry", after(common.StatusFailed, now), now, policyRetry, decision{upgrade, false}},
		{"upgrade failed, abort", after(common.StatusFailed, now), now, policyAbort, decision{stayFailed, false}},
		{"upgrade failed, abort, then changed", after(common.StatusFailed, old), old, policyAbort, decision{upgrade, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(tt.history, now, tt.attempted, tt.policy); got != tt.want {
				t.Errorf("decided %s, want %s", fmt.Sprint(got), fmt.Sprint(tt.want))
			}
		})
	}
}
