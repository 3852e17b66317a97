package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// removal is how long removing everything may take, besides the pod's grace.
const removal = 3 * time.Minute

// Cleanup removes what a run that was killed has left, or ends one that is under way.
func (r *Runner) Cleanup(ctx context.Context) error {
	ours := 0
	for _, o := range r.objects()[1:] { // the pod is in the namespace
		labels, err := o.get(ctx)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("looking at %s: %w", o.what, err)
		case labels[label] != owner:
			return errNotOurs(o.what)
		default:
			ours++
		}
	}
	if ours == 0 {
		r.note("there is nothing to remove")
		return nil
	}
	return r.remove(ctx)
}

// object is one that a run makes.
type object struct {
	what   string
	get    func(context.Context) (labels map[string]string, err error)
	remove func(context.Context) error
}

// objects are those that contain or free all others. The pod goes first: its tests need their rights to tidy up.
func (r *Runner) objects() []object {
	pods, rights, namespaces := r.api.CoreV1().Pods(namespace), r.api.RbacV1().ClusterRoleBindings(), r.api.CoreV1().Namespaces()
	var none metav1.DeleteOptions
	return []object{
		{"pod " + podName, func(ctx context.Context) (map[string]string, error) {
			o, err := pods.Get(ctx, podName, metav1.GetOptions{})
			return o.GetLabels(), err
		}, func(ctx context.Context) error { return pods.Delete(ctx, podName, none) }},
		{"ClusterRoleBinding " + binding, func(ctx context.Context) (map[string]string, error) {
			o, err := rights.Get(ctx, binding, metav1.GetOptions{})
			return o.GetLabels(), err
		}, func(ctx context.Context) error { return rights.Delete(ctx, binding, none) }},
		{"namespace " + namespace, func(ctx context.Context) (map[string]string, error) {
			o, err := namespaces.Get(ctx, namespace, metav1.GetOptions{})
			return o.GetLabels(), err
		}, func(ctx context.Context) error { return namespaces.Delete(ctx, namespace, none) }},
	}
}

// remove removes everything that a run makes.
func (r *Runner) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, grace+removal)
	defer cancel()
	r.note("removes %s; tests that still run get a minute to tidy up", made)
	var failed error
	for _, o := range r.objects() {
		failed = errors.Join(failed, o.gone(ctx))
	}
	if failed != nil {
		return fmt.Errorf("not everything was removed; coracle conformance --cleanup tries again: %w", failed)
	}
	r.sayLeft(ctx)
	return nil
}

// gone removes the object, if a run has made it, and waits until it is gone.
func (o object) gone(ctx context.Context) error {
	for removed := false; ; {
		labels, err := o.get(ctx)
		switch {
		case apierrors.IsNotFound(err), err == nil && labels[label] != owner:
			return nil
		case err == nil && !removed:
			err = o.remove(ctx)
			removed = err == nil
		}
		if lifecycle.Sleep(ctx, poll) != nil {
			return fmt.Errorf("%s is still there: %w", o.what, cmp.Or(err, context.Cause(ctx)))
		}
	}
}

// sayLeft names namespaces of tests that were interrupted. They may also be those of somebody else's tests, so they are not removed.
func (r *Runner) sayLeft(ctx context.Context) {
	const ofTests = "e2e-run"
	left, err := r.api.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: ofTests, Limit: 500})
	if err != nil {
		return
	}
	var names []string
	for _, ns := range left.Items {
		if ns.DeletionTimestamp == nil {
			names = append(names, ns.Name)
		}
	}
	if slices.Sort(names); len(names) > 0 {
		r.note("tests have left these namespaces: %s. If nobody else runs tests, remove them with kubectl delete namespaces -l %s",
			strings.Join(names[:min(len(names), 20)], ", "), ofTests)
	}
}
