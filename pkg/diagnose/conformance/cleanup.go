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
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// removal is how long removing an object may take; the pod has its grace besides.
const removal = time.Minute

// Cleanup removes what a run that was killed has left, or ends one that is under way. What others have made stays.
func (r *Runner) Cleanup(ctx context.Context) (err error) {
	ours := false
	for _, o := range r.objects() {
		found, failed := o.get(ctx)
		switch {
		case apierrors.IsNotFound(failed):
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("looking at %s: %w", o.what, failed))
		case found.GetLabels()[label] != owner:
			err = errors.Join(err, errNotOurs(o.what))
		default:
			*o.uid, ours = found.GetUID(), true
		}
	}
	if ours {
		return errors.Join(err, r.remove(ctx))
	}
	if err == nil {
		r.note("there is nothing to remove")
	}
	return err
}

// object is one that a run makes.
type object struct {
	what   string
	limit  time.Duration // for its removal
	uid    *types.UID    // of the one that is this run's; "" if it is not known to exist
	get    func(context.Context) (metav1.Object, error)
	remove func(context.Context, metav1.DeleteOptions) error
}

// objects are those that contain or free all others. The pod goes first: its tests need their rights to tidy up.
func (r *Runner) objects() []object {
	pods := r.api.CoreV1().Pods(namespace)
	return []object{
		{"pod " + podName, grace + removal, &r.podUID, func(ctx context.Context) (metav1.Object, error) {
			return pods.Get(ctx, podName, metav1.GetOptions{})
		}, func(ctx context.Context, o metav1.DeleteOptions) error { return pods.Delete(ctx, podName, o) }},
		r.rights(),
		{"namespace " + namespace, removal, &r.namespaceUID, func(ctx context.Context) (metav1.Object, error) {
			return r.api.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		}, func(ctx context.Context, o metav1.DeleteOptions) error {
			return r.api.CoreV1().Namespaces().Delete(ctx, namespace, o)
		}},
	}
}

// rights is the ClusterRoleBinding.
func (r *Runner) rights() object {
	rights := r.api.RbacV1().ClusterRoleBindings()
	return object{"ClusterRoleBinding " + binding, removal, &r.bindingUID, func(ctx context.Context) (metav1.Object, error) {
		return rights.Get(ctx, binding, metav1.GetOptions{})
	}, func(ctx context.Context, o metav1.DeleteOptions) error { return rights.Delete(ctx, binding, o) }}
}

// remove removes everything that this run has made. Each object has its own time: a node that does not end the pod must not keep the
// tests' rights.
func (r *Runner) remove(ctx context.Context) error {
	r.note("removes %s; tests that still run get a minute to tidy up", made)
	var failed error
	for _, o := range r.objects() {
		failed = errors.Join(failed, r.gone(ctx, o))
	}
	if failed != nil {
		return fmt.Errorf("not everything was removed; coracle conformance --cleanup tries again: %w", failed)
	}
	r.sayLeft(ctx)
	return nil
}

// gone removes the object, if this run has made it, and waits until it is gone.
func (r *Runner) gone(ctx context.Context, o object) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	for removed := false; ; {
		found, err := o.get(ctx)
		switch {
		case apierrors.IsNotFound(err), err == nil && !r.mine(found, *o.uid):
			return nil
		case err == nil && !removed:
			err = o.remove(ctx, *metav1.NewPreconditionDeleteOptions(string(found.GetUID())))
			removed = err == nil
		}
		if lifecycle.Sleep(ctx, poll) != nil {
			return fmt.Errorf("%s is still there: %w", o.what, cmp.Or(err, context.Cause(ctx)))
		}
	}
}

// mine reports whether an object is that with a UID; or, if the API has not answered whether it was made, belongs to this run's namespace.
func (r *Runner) mine(o metav1.Object, uid types.UID) bool {
	if uid != "" {
		return o.GetUID() == uid
	}
	return slices.ContainsFunc(o.GetOwnerReferences(), func(by metav1.OwnerReference) bool { return by.UID == r.namespaceUID })
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
