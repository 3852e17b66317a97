package helm

import (
	"slices"

	"helm.sh/helm/v4/pkg/release/common"
)

// revision is one entry of a release's history.
type revision struct {
	version int
	status  common.Status
	hash    string // of what was applied, "" if it was not us
	from    string // the namespace of the HelmChart, "" if that is not known
}

// good reports whether it was deployed once.
func (r revision) good() bool {
	return r.status == common.StatusDeployed || r.status == common.StatusSuperseded
}

// lastGood is the newest revision that was deployed once; 0 if there is none. One that was to bring about what did not
// work is none.
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
	stay       step = "stay"        // it is as it should be
	stayFailed step = "stay failed" // what should be was tried and did not work; somebody must change something
	install    step = "install"
	upgrade    step = "upgrade"
	reinstall  step = "reinstall" // remove what is left, and install
	rollback   step = "rollback"  // to the last that was good
)

// decision is a step, and what comes before it.
type decision struct {
	step step
	// interrupted is a revision that somebody who is no more was working at: it must be marked as failed first.
	interrupted bool
}

// decide compares a release's history, oldest revision first, with what should be. attempted is the hash that was
// tried last: a roll-back brings back an old revision with the old hash, which alone would look like a change of mind.
// We are the only one who works at releases, so whatever is pending was interrupted.
func decide(history []revision, hash, attempted string, policy failurePolicy) decision {
	if len(history) == 0 {
		return decision{step: install}
	}
	hasGood := lastGood(history, hash) > 0
	switch last := history[len(history)-1]; last.status {
	case common.StatusDeployed, common.StatusSuperseded:
		switch hash {
		case last.hash:
			return decision{step: stay}
		case attempted:
			return decision{step: stayFailed}
		}
		return decision{step: upgrade}
	case common.StatusUninstalled:
		return decision{step: install}
	case common.StatusPendingInstall, common.StatusUninstalling:
		return decision{step: reinstall}
	case common.StatusPendingUpgrade:
		return decision{step: upgrade, interrupted: true}
	case common.StatusPendingRollback:
		if hasGood {
			return decision{step: rollback, interrupted: true}
		}
		return decision{step: upgrade, interrupted: true}
	default:
		ever := slices.ContainsFunc(history, revision.good)
		return decision{step: afterFailure(ever, hasGood, hash == attempted, policy)}
	}
}

// afterFailure is what to do when the last revision failed. tried says that it was an attempt at what should be. What was
// ever good may hold data, and is not removed unless somebody says so: not even where what should be is again what was
// good, which is nothing to go back to.
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
