package helm

import (
	"slices"

	"helm.sh/helm/v4/pkg/release/common"
)

// revision is one entry of a release's history.
type revision struct {
	version int
	status  common.Status
	hash    string // of the desired state that it was made for; "" if somebody else made it
	from    string // the namespace of the HelmChart; "" if that is not known
}

// good reports whether the revision is, or was, deployed.
func (r revision) good() bool {
	return r.status == common.StatusDeployed || r.status == common.StatusSuperseded
}

// lastGood is the newest good revision; 0 if there is none. Revisions made for hash, which failed, are not considered.
func lastGood(history []revision, hash string) int {
	for _, r := range slices.Backward(history) {
		if r.good() && r.hash != hash {
			return r.version
		}
	}
	return 0
}

// step is what to do with a release.
type step string

const (
	stay       step = "stay"        // it is as desired
	stayFailed step = "stay failed" // the desired state was tried and failed; it is not tried again until it changes
	install    step = "install"
	upgrade    step = "upgrade"
	reinstall  step = "reinstall" // uninstall what is left, and install
	rollback   step = "rollback"  // to the last good revision

	// These are never decided.
	uninstall       step = "uninstall"
	inspect         step = "inspect"          // only read the newest revision
	markInterrupted step = "mark interrupted" // the newest revision, as failed
)

// decide compares a release's history, oldest revision first, with the desired hash. attempted is the hash that was
// tried last: a roll-back restores an old revision with its hash, which alone would look like a change of the chart.
// Only the controller works on releases, so a pending revision was interrupted.
func decide(history []revision, hash, attempted string, policy failurePolicy) step {
	if len(history) == 0 {
		return install
	}
	hasGood := lastGood(history, hash) > 0
	switch last := history[len(history)-1]; last.status {
	case common.StatusDeployed, common.StatusSuperseded:
		switch hash {
		case last.hash:
			return stay
		case attempted:
			return stayFailed
		}
		return upgrade
	case common.StatusUninstalled:
		return install
	case common.StatusPendingInstall:
		if hash != last.hash && (policy == policyRetry || policy == policyAbort) { // changed while it was being installed
			return upgrade
		}
		return reinstall
	case common.StatusUninstalling:
		return reinstall
	case common.StatusPendingUpgrade:
		return upgrade
	case common.StatusPendingRollback:
		// A chart that was changed meanwhile is not the one that is rolled back.
		tried := slices.ContainsFunc(history, func(r revision) bool { return r.hash == hash })
		if hasGood && tried {
			return rollback
		}
		return upgrade
	default:
		ever := slices.ContainsFunc(history, revision.good)
		return afterFailure(ever, hasGood, hash == attempted, policy)
	}
}

// afterFailure decides what to do when the newest revision failed. ever reports that any revision was good, hasGood that
// one is to roll back to, and tried that the failed one was an attempt at the desired state. A release that was ever good may
// have data, and is uninstalled only if the policy says so.
func afterFailure(ever, hasGood, tried bool, policy failurePolicy) step {
	switch policy {
	case policyReinstall:
		return reinstall
	case policyRetry:
		return upgrade
	case policyAbort:
		if tried {
			return stayFailed
		}
		return upgrade
	}
	switch {
	case !ever:
		return reinstall
	case tried && hasGood:
		return rollback
	}
	return upgrade
}
