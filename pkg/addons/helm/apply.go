package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/release/common"
	corev1 "k8s.io/api/core/v1"
)

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
	if err := chartutil.ValidateReleaseName(ch.Name); err != nil {
		return problem{reasonInvalid, fmt.Errorf("the name of a HelmChart is its release's, which may have 53 characters: %w", err)}
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
	if w.hash, err = hash(c.key, ch, content, w.with, followed); err != nil {
		return err
	}
	if w.history, err = c.clients.history(ctx, ch); err != nil {
		return err
	}
	if other := c.another(ch, w.history); other != nil && other.ours() {
		return problem{reasonInvalid, fmt.Errorf("release %s in namespace %s is that of HelmChart %s: give this one another name or targetNamespace, or delete the other one",
			ch.Name, ch.namespace(), nameOf(other))}
	}
	d := decide(w.history, w.hash, ch.Status.Attempted, w.with.FailurePolicy)
	if ch.Status.Attempted == w.hash && ch.Status.reason() == reasonTooLarge {
		d.step = stayFailed
	}
	return c.carryOut(ctx, ch, w, d)
}

// carryOut does what was decided.
func (c *controller) carryOut(ctx context.Context, ch *chart, w wish, d decision) error {
	name := nameOf(ch)
	if err := c.hold(ctx, ch); err != nil {
		return err
	}
	switch d.step {
	case stay:
		c.tell(name, "")
		if ch.Status.Revision != lastOf(w.history).version { // whoever made that revision did not live to tell
			r, err := c.clients.newRelease(ctx, ch, w.with)
			if err != nil {
				return err
			}
			ch.Status.ChartVersion, ch.Status.AppVersion = r.versions()
		}
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
	r, err := c.clients.newRelease(ctx, ch, w.with)
	if err != nil {
		return err
	}
	if d.interrupted {
		c.log.WithField("chart", name.String()).Info("going on with what was interrupted")
		if err := r.markFailed(lastOf(w.history).version, "interrupted: the server that was at it stopped"); err != nil {
			return err
		}
	}
	if d.step == rollback {
		return c.rollBack(ch, r, w, lastOf(w.history).version, errors.New("the upgrade failed or was interrupted"))
	}
	return c.deploy(ctx, ch, r, w, d.step)
}

// deploy installs or upgrades.
func (c *controller) deploy(ctx context.Context, ch *chart, r *release, w wish, step step) error {
	if pause := c.suspect(ch, w); pause > 0 {
		c.queue.AddAfter(nameOf(ch), pause)
		return nil
	}
	with, err := c.accessFor(ctx, ch)
	if err != nil {
		return problem{reasonNotFetched, err}
	}
	fetching, enough := context.WithTimeout(ctx, r.timeout())
	archive, err := w.source.packed(fetching, with)
	enough()
	if err != nil {
		return problem{reasonNotFetched, err}
	}
	packed, err := c.prove(ctx, ch, w, step, archive)
	if err != nil {
		return err
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
			w.history = nil // numbers begin again
			err = r.install(packed, w.values, w.hash)
		}
	case install:
		err = r.install(packed, w.values, w.hash)
	default:
		err = r.upgrade(packed, w.values, w.hash, goesBack(w))
	}
	if err != nil {
		return c.afterError(ctx, ch, r, w, err)
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
	return (w.with.FailurePolicy == policyUnset || w.with.FailurePolicy == policyRollback) && lastGood(w.history, w.hash) > 0
}

// afterError finds out what a failed action has left behind, and rolls it back if that is wished.
func (c *controller) afterError(ctx context.Context, ch *chart, r *release, w wish, err error) error {
	history, herr := c.clients.history(ctx, ch)
	if herr != nil {
		return errors.Join(err, herr)
	}
	last := lastOf(history)
	if last.version == lastOf(w.history).version || !w.made(last) { // nothing was begun, so it may be tried again as it is
		ch.Status.Attempted = ""
		return err
	}
	if last.status != common.StatusFailed || !goesBack(w) {
		return err
	}
	return c.rollBack(ch, r, w, last.version, err)
}

// rollBack goes back from a failed revision to what was good. It always returns an error: cause, or more.
func (c *controller) rollBack(ch *chart, r *release, w wish, from int, cause error) error {
	to := lastGood(w.history, w.hash)
	if err := r.rollback(from, to); err != nil {
		return fmt.Errorf("%w; and rolling back to revision %d: %w", cause, to, err)
	}
	ch.Status.Revision = from + 1
	ch.Status.ChartVersion, ch.Status.AppVersion = r.versions()
	return problem{reasonRolledBack, fmt.Errorf("rolled back to revision %d, as number %d: %w", to, from+1, cause)}
}

func lastOf(history []revision) revision {
	if len(history) == 0 {
		return revision{}
	}
	return history[len(history)-1]
}

// deployed is the status of a chart that is in force.
func (c *controller) deployed(ch *chart, w wish) chartStatus {
	status := ch.Status
	status.Revision, status.Attempted = lastOf(w.history).version, w.hash
	return status.told(ch.Generation, reasonDeployed, nil)
}
