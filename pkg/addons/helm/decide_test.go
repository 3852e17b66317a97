package helm

import (
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
		want      step
	}{
		{"nothing is there", nil, "", policyUnset, install},
		{"nothing is there after a failure that left nothing", nil, now, policyUnset, install},
		{"in force", one(common.StatusDeployed, now), now, policyUnset, stay},
		{"in force, status lost", one(common.StatusDeployed, now), "", policyUnset, stay},
		{"changed", one(common.StatusDeployed, old), old, policyUnset, upgrade},
		{"somebody else's release", one(common.StatusDeployed, ""), "", policyUnset, upgrade},
		{"rolled back", after(common.StatusDeployed, old), now, policyUnset, stayFailed},
		{"rolled back, then changed", after(common.StatusDeployed, old), "other", policyUnset, upgrade},
		{"uninstalled and kept", one(common.StatusUninstalled, now), now, policyUnset, install},
		{"install interrupted", one(common.StatusPendingInstall, now), now, policyUnset, reinstall},
		{"install interrupted, abort", one(common.StatusPendingInstall, now), now, policyAbort, reinstall},
		{"changed while it was being installed", one(common.StatusPendingInstall, old), old, policyUnset, reinstall},
		{"changed while it was being installed, retry", one(common.StatusPendingInstall, old), old, policyRetry, upgrade},
		{"changed while it was being installed, abort", one(common.StatusPendingInstall, old), old, policyAbort, upgrade},
		{"uninstall interrupted", one(common.StatusUninstalling, now), now, policyUnset, reinstall},
		{"upgrade interrupted", after(common.StatusPendingUpgrade, now), now, policyUnset, upgrade},
		{"roll-back interrupted", []revision{{1, common.StatusDeployed, old, ""}, {2, common.StatusFailed, now, ""}, {3, common.StatusPendingRollback, old, ""}}, now, policyUnset, rollback},
		{"changed while it was rolled back", []revision{{1, common.StatusDeployed, old, ""}, {2, common.StatusFailed, "other", ""}, {3, common.StatusPendingRollback, old, ""}}, "other", policyUnset, upgrade},
		{"roll-back interrupted, nothing good", one(common.StatusPendingRollback, old), now, policyUnset, upgrade},
		{"roll-back failed", []revision{{1, common.StatusSuperseded, old, ""}, {2, common.StatusSuperseded, now, ""}, {3, common.StatusFailed, old, ""}}, now, policyUnset, rollback},
		{"good once, and failed as the same", []revision{{1, common.StatusSuperseded, now, ""}, {2, common.StatusFailed, now, ""}}, now, policyUnset, upgrade},
		{"a change taken back before it was rolled back", []revision{{1, common.StatusDeployed, now, ""}, {2, common.StatusFailed, "other", ""}}, "", policyUnset, upgrade},
		{"taken back after the roll-back failed too", []revision{{1, common.StatusDeployed, now, ""}, {2, common.StatusFailed, "other", ""}, {3, common.StatusFailed, now, ""}},
			"other", policyRollback, upgrade},
		{"first install failed", one(common.StatusFailed, now), now, policyUnset, reinstall},
		{"first install failed, rollback", one(common.StatusFailed, now), now, policyRollback, reinstall},
		{"first install failed, abort", one(common.StatusFailed, now), now, policyAbort, stayFailed},
		{"first install failed, retry", one(common.StatusFailed, now), now, policyRetry, upgrade},
		{"upgrade failed and was not rolled back", after(common.StatusFailed, now), now, policyUnset, rollback},
		{"upgrade failed, then changed", after(common.StatusFailed, old), old, policyUnset, upgrade},
		{"upgrade failed, reinstall", after(common.StatusFailed, now), now, policyReinstall, reinstall},
		{"upgrade failed, retry", after(common.StatusFailed, now), now, policyRetry, upgrade},
		{"upgrade failed, abort", after(common.StatusFailed, now), now, policyAbort, stayFailed},
		{"upgrade failed, abort, then changed", after(common.StatusFailed, old), old, policyAbort, upgrade},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decide(tt.history, now, tt.attempted, tt.policy); got != tt.want {
				t.Errorf("decided %s, want %s", got, tt.want)
			}
		})
	}
}
