package helmcharts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

// problem is an error with the reason that a condition has.
type problem struct {
	reason string
	error
}

func (p problem) Unwrap() error { return p.error }

// reconcile brings one chart's release to what the chart says. A chart that failed is tried again after a pause if an
// error is returned. forever ends with the process' leadership, and not with a change of the chart.
func (c *controller) reconcile(forever context.Context, name cache.ObjectName) error {
	ctx, end := c.begin(forever, name)
	defer end()
	ch, config, err := c.chart(ctx, name)
	switch {
	case ch == nil && err != nil:
		return err
	case ch == nil:
		c.forget(forever, name)
		return nil
	case !ch.ours(), c.Disabled && ch.DeletionTimestamp != nil:
		c.forget(forever, name)
		return c.release(ctx, ch)
	case c.Disabled:
		return nil
	case ch.DeletionTimestamp != nil:
		err = c.remove(ctx, ch)
	case err == nil:
		err = c.apply(ctx, forever, ch, config)
	}
	switch {
	case forever.Err() != nil:
		return nil
	case ctx.Err() != nil: // what was being applied does not count as tried
		ch.Status.Attempted = ""
		return errors.Join(errChanged, c.write(forever, ch, ch.Status.told(ch.Generation, reasonWorking, nil)))
	case err == nil:
		return nil
	}
	return c.fail(ctx, ch, config, err)
}

// forget drops what is known of a chart that is not ours any more.
func (c *controller) forget(ctx context.Context, name cache.ObjectName) {
	c.refs.set(ctx, ctx, name, nil)
	c.tell(name, "")
}

// fail tells what went wrong. It returns an error if the same is worth another try.
func (c *controller) fail(ctx context.Context, ch *chart, config overrides, err error) error {
	var p problem
	if !errors.As(err, &p) {
		p = problem{reasonFailed, err}
	}
	name := nameOf(ch)
	c.log.WithError(p.error).WithFields(logrus.Fields{"chart": name.String(), "reason": p.reason}).Warn("applying the chart")
	c.tell(name, shorten(p.Error()))
	c.event(ctx, ch, corev1.EventTypeWarning, p.reason, p.Error())
	told := c.write(ctx, ch, ch.Status.told(ch.Generation, p.reason, p.error))
	if p.reason == reasonRolledBack || p.reason == reasonFailed && c.settled(ch, config) {
		return told
	}
	return errors.Join(p, told)
}

// settled reports whether a chart that failed is left to people.
func (c *controller) settled(ch *chart, config overrides) bool {
	return ch.Spec.overrides.with(config).FailurePolicy == policyAbort && ch.Status.Attempted != ""
}

// wish is what should be.
type wish struct {
	hash    string
	values  map[string]any
	with    overrides
	source  source
	history []revision
}

// apply installs or upgrades, if something differs.
func (c *controller) apply(ctx, forever context.Context, ch *chart, config overrides) error {
	if v := ch.Spec.HelmVersion; v != "" && v != "v3" {
		return problem{reasonUnsupported, fmt.Errorf("helmVersion %s: charts are applied by Helm 4, which reads what Helm 3 reads; leave it out", v)}
	}
	w := wish{with: ch.Spec.overrides.with(config), source: source{ch.Spec, c.Charts}}
	file, _, err := w.source.local()
	if err != nil {
		return problem{reasonInvalid, err}
	}
	c.refs.set(ctx, forever, nameOf(ch), refsOf(ch, config, file))
	var followed map[string]any
	if w.values, followed, err = mergeValues(ctx, ch.Spec, config, c.clients.secretsOf(ch.Namespace)); err != nil {
		return problem{reasonInvalid, err}
	}
	content, err := w.source.content()
	if err != nil {
		return problem{reasonNotFetched, err}
	}
	if w.hash, err = hash(ch, content, w.with, followed); err != nil {
		return err
	}
	if w.history, err = c.clients.history(ctx, ch); err != nil {
		return err
	}
	return c.carryOut(ctx, ch, w, decide(w.history, w.hash, ch.Status.Attempted, w.with.FailurePolicy))
}

// carryOut does what was decided.
func (c *controller) carryOut(ctx context.Context, ch *chart, w wish, d decision) error {
	name := nameOf(ch)
	switch d.step {
	case stay:
		c.tell(name, "")
		return c.write(ctx, ch, c.deployed(ch, w))
	case stayFailed:
		if !slices.ContainsFunc(ch.Status.Conditions, func(c condition) bool { return c.Type == failed && c.Status == "True" }) {
			return problem{reasonRolledBack, errors.New("an earlier revision is in force; change the chart to have it applied again")}
		}
		for _, condition := range ch.Status.Conditions {
			if condition.Type == failed {
				c.tell(name, condition.Message)
			}
		}
		return nil
	}
	if err := c.hold(ctx, ch); err != nil {
		return err
	}
	r, err := c.clients.newRelease(ctx, ch, w.with)
	if err != nil {
		return err
	}
	if d.interrupted {
		c.log.WithField("chart", name.String()).Info("going on with what was interrupted")
		if err := r.markInterrupted(); err != nil {
			return err
		}
	}
	if d.step == rollback {
		return c.rollBack(ctx, ch, r, w)
	}
	return c.deploy(ctx, ch, r, w, d.step)
}

// deploy installs or upgrades.
func (c *controller) deploy(ctx context.Context, ch *chart, r *release, w wish, step step) error {
	with, err := c.clients.accessFor(ctx, ch)
	if err != nil {
		return problem{reasonNotFetched, err}
	}
	fetching, enough := context.WithTimeout(ctx, r.timeout())
	packed, err := w.source.fetch(fetching, with)
	enough()
	if err != nil {
		return problem{reasonNotFetched, err}
	}
	status := ch.Status
	status.Attempted = w.hash
	if err := c.write(ctx, ch, status.told(ch.Generation, reasonWorking, nil)); err != nil {
		return err
	}
	c.event(ctx, ch, corev1.EventTypeNormal, "ApplyChart", fmt.Sprintf("%s of %s %s", step, packed.Name(), packed.Metadata.Version))
	if err := r.createNamespace(ctx); err != nil {
		return err
	}
	switch step {
	case reinstall:
		if err = r.uninstall(ctx); err == nil {
			err = r.install(packed, w.values, w.hash)
		}
	case install:
		err = r.install(packed, w.values, w.hash)
	default:
		err = r.upgrade(packed, w.values, w.hash, goesBack(w))
	}
	if err != nil {
		return c.afterError(ctx, ch, w, err)
	}
	ch.Status.ChartVersion, ch.Status.AppVersion = packed.Metadata.Version, packed.Metadata.AppVersion
	if w.history, err = c.clients.history(ctx, ch); err != nil {
		return err
	}
	c.tell(nameOf(ch), "")
	c.log.WithField("chart", nameOf(ch).String()).WithField("version", packed.Metadata.Version).Info("chart applied")
	c.event(ctx, ch, corev1.EventTypeNormal, "AppliedChart", fmt.Sprintf("%s %s", packed.Name(), packed.Metadata.Version))
	return c.write(ctx, ch, c.deployed(ch, w))
}

// goesBack reports whether a failed upgrade is to be rolled back, which needs something to go back to.
func goesBack(w wish) bool {
	return (w.with.FailurePolicy == policyUnset || w.with.FailurePolicy == policyRollback) &&
		slices.ContainsFunc(w.history, revision.good)
}

// afterError finds out what a failed action has left behind.
func (c *controller) afterError(ctx context.Context, ch *chart, w wish, err error) error {
	history, herr := c.clients.history(ctx, ch)
	if herr != nil {
		return errors.Join(err, herr)
	}
	last := lastOf(history)
	if last.version == lastOf(w.history).version { // nothing was begun, so it may be tried again as it is
		ch.Status.Attempted = ""
	}
	if last.good() && last.version > 0 && last.version != lastOf(w.history).version {
		ch.Status.Revision = last.version
		return problem{reasonRolledBack, err}
	}
	return err
}

func lastOf(history []revision) revision {
	if len(history) == 0 {
		return revision{}
	}
	return history[len(history)-1]
}

// rollBack finishes a roll-back.
func (c *controller) rollBack(ctx context.Context, ch *chart, r *release, w wish) error {
	to := 0
	for _, revision := range w.history {
		if revision.good() {
			to = revision.version
		}
	}
	if err := r.rollback(to); err != nil {
		return fmt.Errorf("rolling back to revision %d: %w", to, err)
	}
	ch.Status.Revision = lastOf(w.history).version + 1
	return problem{reasonRolledBack, fmt.Errorf("rolled back to revision %d, because the upgrade failed or was interrupted", to)}
}

// deployed is the status of a chart that is in force.
func (c *controller) deployed(ch *chart, w wish) chartStatus {
	status := ch.Status
	status.Revision, status.Attempted = lastOf(w.history).version, w.hash
	return status.told(ch.Generation, reasonDeployed, nil)
}

// remove uninstalls a deleted chart.
func (c *controller) remove(ctx context.Context, ch *chart) error {
	name := nameOf(ch)
	c.refs.set(ctx, ctx, name, nil)
	if !slices.Contains(ch.Finalizers, finalizer) {
		return nil
	}
	r, err := c.clients.newRelease(ctx, ch, ch.Spec.overrides)
	if err != nil {
		return err
	}
	if err := r.uninstall(ctx); err != nil {
		return problem{reasonNotRemoved, fmt.Errorf("uninstalling; annotation %s makes it be left alone: %w", unmanagedAnnotation, err)}
	}
	c.event(ctx, ch, corev1.EventTypeNormal, "RemovedChart", "uninstalled")
	c.log.WithField("chart", name.String()).Info("chart uninstalled")
	c.tell(name, "")
	return c.release(ctx, ch)
}

// hold puts our finalizer on a chart, before anything is installed.
func (c *controller) hold(ctx context.Context, ch *chart) error {
	return c.finalizers(ctx, ch, func(now []string) []string {
		if slices.Contains(now, finalizer) {
			return now
		}
		return append(slices.Clone(now), finalizer)
	})
}

// release takes our finalizer off.
func (c *controller) release(ctx context.Context, ch *chart) error {
	return c.finalizers(ctx, ch, func(now []string) []string {
		return slices.DeleteFunc(slices.Clone(now), func(f string) bool { return f == finalizer })
	})
}

// finalizers changes them, keeping what others wrote meanwhile.
func (c *controller) finalizers(ctx context.Context, ch *chart, change func([]string) []string) error {
	if slices.Equal(change(ch.Finalizers), ch.Finalizers) {
		return nil
	}
	charts := c.clients.dynamic.Resource(chartsAPI).Namespace(ch.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := charts.Get(ctx, ch.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"finalizers": change(live.GetFinalizers()), "resourceVersion": live.GetResourceVersion(),
		}})
		if err != nil {
			return err
		}
		_, err = charts.Patch(ctx, ch.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "coracle"})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the finalizers: %w", err)
	}
	return nil
}

// nameOf is the key of a chart.
func nameOf(ch *chart) cache.ObjectName { return cache.NewObjectName(ch.Namespace, ch.Name) }
