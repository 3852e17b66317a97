package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	corev1 "k8s.io/api/core/v1"
)

// desired is the state that a HelmChart and its HelmChartConfig describe, with the release's history.
type desired struct {
	hash    string
	values  map[string]any
	with    overrides
	source  source
	history []revision
}

// apply installs or upgrades, if something differs.
func (c *controller) apply(ctx, leading context.Context, ch *chart, config overrides) error {
	if v := ch.Spec.HelmVersion; v != "" && v != "v3" {
		return problem{reasonUnsupported, fmt.Errorf("helmVersion %s: charts are applied by Helm 4, which reads what Helm 3 reads; leave it out", v)}
	}
	if err := chartutil.ValidateReleaseName(ch.Name); err != nil {
		return problem{reasonInvalid, fmt.Errorf("the name of a HelmChart is its release's, which may have 53 characters: %w", err)}
	}
	w := desired{with: ch.Spec.overrides.with(config), source: source{ch.Spec, c.Charts, c.Copy}}
	file, _, err := w.source.local()
	if err != nil {
		return problem{reasonInvalid, err}
	}
	c.refs.set(ctx, leading, nameOf(ch), refsOf(ch, config, file))
	clients, err := c.as(ctx, ch)
	if err != nil {
		return err
	}
	var followed map[string]any
	if w.values, followed, err = mergeValues(ctx, ch.Spec, config, clients.secretsOf(ch.Namespace)); err != nil {
		return problem{reasonInvalid, err}
	}
	content, err := w.source.content()
	if err != nil {
		return problem{reasonNotFetched, err}
	}
	if w.hash, err = hash(c.key, ch, content, w.with, followed); err != nil {
		return err
	}
	if w.history, err = clients.history(ctx, ch); err != nil {
		return err
	}
	if other := c.otherOwner(ch, w.history); other != nil && other.managed() {
		return problem{reasonInvalid, fmt.Errorf("release %s in namespace %s is that of HelmChart %s: give this one another name or targetNamespace, or delete the other one",
			ch.Name, ch.namespace(), nameOf(other))}
	}
	return c.carryOut(ctx, ch, w, w.step(ch.Status))
}

// step decides what to do with the release.
func (w desired) step(status chartStatus) step {
	attempted := status.Attempted
	switch failedBefore := slices.ContainsFunc(w.history, func(r revision) bool { return r.hash == w.hash && !r.good() }); {
	case attempted == w.hash && status.reason() == reasonTooLarge:
		return stayFailed
	case status.reason() == reasonWorking && !failedBefore:
		attempted = "" // the server that was applying it ended before there was a revision
	}
	return decide(w.history, w.hash, attempted, w.with.FailurePolicy)
}

// carryOut does what was decided.
func (c *controller) carryOut(ctx context.Context, ch *chart, w desired, step step) error {
	name, newest := nameOf(ch), newestOf(w.history)
	if err := c.setFinalizer(ctx, ch, true); err != nil { // before anything is installed
		return err
	}
	switch step {
	case stay:
		c.setProblem(name, "")
		if ch.Status.Revision != newest.version { // the server that made the revision ended before it wrote the status
			res, err := c.runOnRelease(ctx, request{Chart: ch, Step: inspect, Newest: newest.version})
			if err != nil {
				return err
			}
			ch.Status.ChartVersion, ch.Status.AppVersion = res.ChartVersion, res.AppVersion
		}
		return c.write(ctx, ch, deployed(ch, w.hash, newest.version))
	case stayFailed:
		if !slices.ContainsFunc(ch.Status.Conditions, func(c condition) bool { return c.Type == failed && c.Status == "True" }) {
			return problem{reasonRolledBack, errors.New("an earlier revision is in force; change the chart to have it applied again")}
		}
		for _, condition := range ch.Status.Conditions {
			if condition.Type == failed {
				c.setProblem(name, condition.Message)
			}
		}
		return nil
	}
	if err := c.markPending(ctx, ch, newest); err != nil {
		return err
	}
	if newest.status.IsPending() && step != rollback {
		ch.Status.Attempted = "" // if the chart cannot be fetched now, it is still to be tried again
	}
	return c.deploy(ctx, ch, w, step)
}

// markPending marks the newest revision as failed if it is pending. The controller is the only one that works on releases, so
// the action was interrupted.
func (c *controller) markPending(ctx context.Context, ch *chart, newest revision) error {
	if !newest.status.IsPending() {
		return nil
	}
	c.log.WithField("chart", nameOf(ch).String()).Infof("revision %d was interrupted", newest.version)
	_, err := c.runOnRelease(ctx, request{Chart: ch, Step: markInterrupted, Newest: newest.version})
	return err
}

// abandon marks the newest revision of a chart that cannot be applied any more as failed if the controller left it pending.
func (c *controller) abandon(ctx context.Context, ch *chart) error {
	history, err := c.history(ctx, ch)
	newest := newestOf(history)
	if err != nil || newest.from != ch.Namespace || !newest.status.IsPending() {
		return err
	}
	ch.Status.Attempted = "" // it may be tried again when it can be applied
	return c.markPending(ctx, ch, newest)
}

// deploy has a child process install, upgrade or roll back.
func (c *controller) deploy(ctx context.Context, ch *chart, w desired, step step) error {
	r := request{Chart: ch, Overrides: w.with, Values: w.values, Hash: w.hash, Step: step, Newest: newestOf(w.history).version, Limits: c.limits}
	if step == rollback || w.rollsBack() {
		r.RollbackTo = lastGood(w.history, w.hash)
	}
	var res result
	var chart renderedChart
	var err error
	if step == rollback {
		res, err = c.runOnRelease(ctx, r)
	} else {
		if r.Archive, err = c.fetch(ctx, ch, w.source); err != nil {
			return problem{reasonNotFetched, err}
		}
		res, err = c.runRendering(ctx, r, func(rendered renderedChart) error {
			chart = rendered
			status := ch.Status
			status.Attempted = w.hash
			if err := c.write(ctx, ch, status.withConditions(ch.Generation, reasonWorking, nil)); err != nil {
				return err
			}
			c.event(ctx, ch, corev1.EventTypeNormal, "ApplyChart", fmt.Sprintf("%s of %s %s", step, chart.Name, chart.Version))
			return nil
		})
	}
	var p problem
	switch isProblem := errors.As(err, &p); {
	case err == nil:
	case p.reason == reasonTooLarge:
		ch.Status.Attempted = w.hash // it is not tried again until the chart changes
		return err
	case p.reason == reasonRolledBack:
		ch.Status.Attempted = w.hash // even after a try that was forgotten: what was rolled back is not tried again
		ch.Status.Revision, ch.Status.ChartVersion, ch.Status.AppVersion = res.Revision, res.ChartVersion, res.AppVersion
		return err
	case step != rollback && !isProblem && !res.Begun:
		ch.Status.Attempted = "" // it may be tried again as it is
		return err
	default:
		return err
	}
	ch.Status.ChartVersion, ch.Status.AppVersion = res.ChartVersion, res.AppVersion
	c.setProblem(nameOf(ch), "")
	c.log.WithField("chart", nameOf(ch).String()).WithField("version", res.ChartVersion).Info("chart applied")
	c.event(ctx, ch, corev1.EventTypeNormal, "AppliedChart", fmt.Sprintf("%s %s", chart.Name, chart.Version))
	return c.write(ctx, ch, deployed(ch, w.hash, res.Revision))
}

// fetch gets the chart's archive.
func (c *controller) fetch(ctx context.Context, ch *chart, s source) ([]byte, error) {
	with, err := c.accessFor(ctx, ch)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ch.timeout())
	defer cancel()
	return s.packed(ctx, with)
}

// runRendering runs a request that renders a chart. Charts are rendered one at a time, because that takes much memory.
func (c *controller) runRendering(ctx context.Context, r request, rendered func(renderedChart) error) (result, error) {
	select {
	case c.memorySlot <- struct{}{}:
	case <-ctx.Done():
		return result{}, fmt.Errorf("waiting to render the chart: %w", ctx.Err())
	}
	done := sync.OnceFunc(func() { <-c.memorySlot })
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(r.Limits.Time, func() { cancel(fmt.Errorf("rendering took longer than %s", r.Limits.Time)) })
	defer late.Stop()
	return c.runChild(ctx, r, func(chart renderedChart) error {
		late.Stop()
		done()
		return rendered(chart)
	})
}

// runOnRelease runs a request that renders nothing.
func (c *controller) runOnRelease(ctx context.Context, r request) (result, error) {
	return c.runChild(ctx, r, func(renderedChart) error { return nil })
}

// rollsBack reports whether a failed upgrade is to be rolled back.
func (w desired) rollsBack() bool {
	return w.with.FailurePolicy == policyUnset || w.with.FailurePolicy == policyRollback
}

// newestOf is the last revision of a history; the zero value if there is none.
func newestOf(history []revision) revision {
	if len(history) == 0 {
		return revision{}
	}
	return history[len(history)-1]
}

// deployed is the status of a chart that is in force.
func deployed(ch *chart, hash string, revision int) chartStatus {
	status := ch.Status
	status.Revision, status.Attempted = revision, hash
	return status.withConditions(ch.Generation, reasonDeployed, nil)
}
