package helm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/release/common"
	releasev1 "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// run carries out the request. rendered is called when the chart is rendered, before any of its objects is written.
func (r request) run(ctx context.Context, c *clients, rendered func(renderedChart)) result {
	rel, err := c.newRelease(ctx, r.Chart, r.Overrides)
	if err != nil {
		return result{Error: err.Error()}
	}
	return r.runWith(ctx, rel, rendered)
}

// runWith carries out the request with a prepared release.
func (r request) runWith(ctx context.Context, rel *release, rendered func(renderedChart)) result {
	var res result
	err := r.do(ctx, rel, &res, rendered)
	if err != nil {
		res.Error, res.Conflict = err.Error(), apierrors.IsConflict(err)
		if p := (problem{}); errors.As(err, &p) {
			res.Reason = p.reason
		}
	}
	return res
}

// do carries out the request and fills in the result, except its error.
func (r request) do(ctx context.Context, rel *release, res *result, rendered func(renderedChart)) error {
	switch r.Step {
	case markInterrupted:
		return rel.markFailed(r.Newest, "interrupted: the process that was applying it ended")
	case inspect:
		res.Revision = r.Newest
		res.ChartVersion, res.AppVersion = rel.versions()
		return nil
	case uninstall:
		return rel.uninstall(ctx)
	case rollback:
		return r.rollBack(rel, res, r.Newest, errors.New("the upgrade failed or was interrupted"))
	}
	err := r.deploy(ctx, rel, res, rendered)
	if err == nil || errors.As(err, new(problem)) {
		return err
	}
	return r.afterError(ctx, rel, res, err)
}

// deploy installs or upgrades. Errors of the chart itself are problems.
func (r request) deploy(ctx context.Context, rel *release, res *result, rendered func(renderedChart)) error {
	values := r.Values
	if values == nil {
		values = map[string]any{}
	}
	// JSON has one type for numbers. Those of YAML are floats anyway; those of set are integers, as with helm --set.
	if err := set(r.Chart.Spec.Set, values); err != nil {
		return problem{reasonInvalid, err}
	}
	lift := sync.OnceFunc(r.Limits.impose())
	defer lift()
	chart, err := load(r.Archive)
	if err != nil {
		return problem{reasonNotFetched, err}
	}
	begin := sync.OnceFunc(func() {
		lift()
		rendered(renderedChart{chart.Name(), chart.Metadata.Version})
	})
	if err := rel.createNamespace(ctx); err != nil {
		return err
	}
	if r.Step == reinstall {
		if err := r.dryRun(rel, values); err != nil {
			return err
		}
		begin()
		if err := rel.uninstall(ctx); err != nil {
			return err
		}
		lift = sync.OnceFunc(r.Limits.impose()) // the chart is rendered once more, and can tell that from the first time
		defer lift()
	}
	rel.created = func(revision *releasev1.Release) error {
		if err := r.Limits.check(revision); err != nil {
			return err
		}
		begin()
		lift()
		return nil
	}
	if r.Step == upgrade {
		res.Revision, err = rel.upgrade(chart, values, r.Hash, r.RollbackTo > 0)
	} else {
		res.Revision, err = rel.install(chart, values, r.Hash)
	}
	rel.created = nil
	if err == nil {
		res.Begun, res.ChartVersion, res.AppVersion = true, chart.Metadata.Version, chart.Metadata.AppVersion
	}
	return err
}

// dryRun renders a chart before its release is uninstalled: a chart that exceeds a limit must not remove what works.
// Other errors are ignored, because a definition of the chart's kinds may be missing in a dry run.
func (r request) dryRun(rel *release, values map[string]any) error {
	chart, err := load(r.Archive) // rendering changes it
	if err != nil {
		return problem{reasonNotFetched, err}
	}
	install := rel.installer("")
	install.DryRunStrategy = action.DryRunServer
	out, _ := install.Run(chart, values)
	if revision, ok := out.(*releasev1.Release); ok && revision != nil {
		return r.Limits.check(revision)
	}
	return nil
}

// afterError finds out what a failed action has left behind, and rolls it back if the request says so.
func (r request) afterError(ctx context.Context, rel *release, res *result, err error) error {
	history, herr := rel.clients.history(ctx, r.Chart)
	if herr != nil {
		return errors.Join(err, herr)
	}
	newest, before := newestOf(history), r.Newest
	if r.Step == reinstall {
		before = 0 // numbers begin again
	}
	res.Begun = newest.version != before && newest.hash == r.Hash
	if !res.Begun || newest.status != common.StatusFailed || r.RollbackTo == 0 {
		return err
	}
	return r.rollBack(rel, res, newest.version, err)
}

// rollBack returns from a failed revision to the one of the request. It always returns an error: cause, or more.
func (r request) rollBack(rel *release, res *result, from int, cause error) error {
	if err := rel.rollback(from, r.RollbackTo); err != nil {
		return fmt.Errorf("%w; and rolling back to revision %d: %w", cause, r.RollbackTo, err)
	}
	res.Begun, res.Revision = true, from+1
	res.ChartVersion, res.AppVersion = rel.versions()
	return problem{reasonRolledBack, fmt.Errorf("rolled back to revision %d, as number %d: %w", r.RollbackTo, from+1, cause)}
}
