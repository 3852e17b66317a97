package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

// problem is an error with the reason for the conditions of the chart.
type problem struct {
	reason string
	error
}

func (p problem) Unwrap() error { return p.error }

// errUnmanaged is the error in the status of a chart that became unmanaged while it was being applied.
var errUnmanaged = errors.New("the chart became unmanaged while it was being applied")

// reconcile brings a chart's release to the state that the chart describes. If it returns an error, the chart is tried
// again after a pause. leading is done when this server no longer leads; a change of the chart does not cancel it.
func (c *controller) reconcile(leading context.Context, name cache.ObjectName) error {
	ctx, end := c.begin(leading, name)
	defer end()
	ch, config, err := c.chart(ctx, name)
	switch {
	case ch == nil && err != nil:
		if leading.Err() == nil && ctx.Err() == nil {
			c.log.WithError(err).WithField("chart", name.String()).Warn("reading the chart")
		}
		return err
	case ch == nil:
		c.forget(leading, name)
		c.requeueNamesakes(name)
		return nil
	case !ch.managed(), c.Disabled && ch.DeletionTimestamp != nil:
		c.forget(leading, name)
		c.requeueNamesakes(name)
		var abandoned error
		if !ch.managed() && ch.Status.reason() == reasonWorking {
			abandoned = errors.Join(c.abandon(ctx, ch), c.write(ctx, ch, ch.Status.withConditions(ch.Generation, reasonFailed, errUnmanaged)))
		}
		return errors.Join(abandoned, c.setFinalizer(ctx, ch, false))
	case c.Disabled:
		return nil
	case ch.DeletionTimestamp != nil:
		err = c.remove(ctx, ch)
	case err == nil:
		err = c.apply(ctx, leading, ch, config)
	}
	switch {
	case leading.Err() != nil:
		return nil
	case ctx.Err() != nil: // a cancelled attempt does not count
		ch.Status.Attempted = ""
		return errors.Join(errChanged, c.write(leading, ch, ch.Status.withConditions(ch.Generation, reasonWorking, nil)))
	case err == nil:
		return nil
	}
	return c.fail(ctx, ch, config, err)
}

// forget drops all state of a chart that the controller no longer manages.
func (c *controller) forget(ctx context.Context, name cache.ObjectName) {
	c.refs.set(ctx, ctx, name, nil)
	c.setProblem(name, "")
}

// fail logs and reports an error. It returns an error if the chart is to be tried again.
func (c *controller) fail(ctx context.Context, ch *chart, config overrides, err error) error {
	var p problem
	if !errors.As(err, &p) {
		p = problem{reasonFailed, err}
	}
	conflict := apierrors.IsConflict(err) && p.reason == reasonFailed
	if conflict {
		p.error = fmt.Errorf("somebody else has changed fields that the chart sets; forceConflicts: true takes them over: %w", err)
	}
	p.error = withoutQueries{p.error}
	name := nameOf(ch)
	if p.reason == reasonInvalid || p.reason == reasonUnsupported || p.reason == reasonNotFetched {
		p.error = errors.Join(p.error, c.abandon(ctx, ch))
	}
	c.log.WithError(p.error).WithFields(logrus.Fields{"chart": name.String(), "reason": p.reason}).Warn("applying the chart")
	c.setProblem(name, shorten(p.Error()))
	c.event(ctx, ch, corev1.EventTypeWarning, p.reason, p.Error())
	written := c.write(ctx, ch, ch.Status.withConditions(ch.Generation, p.reason, p.error))
	if settled(ch.Spec.overrides.with(config).FailurePolicy, p, conflict, ch.Status.Attempted != "") {
		return written
	}
	return errors.Join(p, written)
}

// settled reports whether a failed chart is not tried again until it changes.
func settled(policy failurePolicy, p problem, conflict, tried bool) bool {
	switch {
	case p.reason == reasonRolledBack, p.reason == reasonTooLarge:
		return true
	case p.reason != reasonFailed:
		return false
	case policy == policyAbort:
		return tried
	}
	return conflict && policy != policyReinstall && policy != policyRetry
}

// remove uninstalls the release of a deleted chart, unless it belongs to another chart.
func (c *controller) remove(ctx context.Context, ch *chart) error {
	name := nameOf(ch)
	c.refs.set(ctx, ctx, name, nil)
	if !slices.Contains(ch.Finalizers, finalizer) {
		return nil
	}
	history, err := c.history(ctx, ch)
	if err != nil && c.lostWithNamespace(ctx, ch, err) {
		c.log.WithField("chart", name.String()).Infof("deleted with its namespace; what its release has elsewhere stays: %v", err)
		c.setProblem(name, "")
		return c.setFinalizer(ctx, ch, false)
	}
	const hint = "uninstalling; annotation %s makes it be left alone: %w"
	if err != nil {
		return fmt.Errorf(hint, unmanagedAnnotation, err)
	}
	if other := c.otherOwner(ch, history); other != nil {
		c.log.WithField("chart", name.String()).Infof("deleted; its release stays, which is that of HelmChart %s", nameOf(other))
		c.setProblem(name, "")
		return c.setFinalizer(ctx, ch, false)
	}
	if len(history) > 0 {
		_, err = c.runOnRelease(ctx, request{Chart: ch, Overrides: ch.Spec.overrides, Step: uninstall, Newest: newestOf(history).version})
	}
	if err != nil {
		return problem{reasonNotRemoved, fmt.Errorf(hint, unmanagedAnnotation, err)}
	}
	c.event(ctx, ch, corev1.EventTypeNormal, "RemovedChart", "uninstalled")
	c.log.WithField("chart", name.String()).Info("chart uninstalled")
	c.setProblem(name, "")
	return c.setFinalizer(ctx, ch, false)
}

// setFinalizer adds or removes the controller's finalizer, and keeps those that others add or remove meanwhile.
func (c *controller) setFinalizer(ctx context.Context, ch *chart, want bool) error {
	if slices.Contains(ch.Finalizers, finalizer) == want {
		return nil
	}
	charts := c.clients.dynamic.Resource(chartsAPI).Namespace(ch.Namespace)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live, err := charts.Get(ctx, ch.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		all := slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return f == finalizer })
		if want {
			all = append(all, finalizer)
		}
		live.SetFinalizers(all)
		_, err = charts.Update(ctx, live, metav1.UpdateOptions{FieldManager: "coracle"})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the finalizers: %w", err)
	}
	return nil
}

// nameOf is the key of a chart.
func nameOf(ch *chart) cache.ObjectName { return cache.NewObjectName(ch.Namespace, ch.Name) }
