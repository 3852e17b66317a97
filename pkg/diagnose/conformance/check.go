package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/diagnose/conformance/results"
)

// fullNodes is the number of nodes that the conformance tests need: some compare two.
const fullNodes = 2

// check finds out about the cluster, and whether the tests can be run there.
func (r *Runner) check(ctx context.Context) error {
	version, err := r.api.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the cluster's version: %w", err)
	}
	r.run = results.Run{Version: version.GitVersion, Focus: r.Focus, Skip: r.Skip, Parallel: r.Parallel, DryRun: r.DryRun, Began: time.Now()}
	if r.run.Release() == "" {
		return fmt.Errorf("the cluster says that its version is %.80q, which is no version of Kubernetes", version.GitVersion)
	}
	if r.Image == "" {
		r.Image = Repository + ":" + r.run.Release()
	}
	r.run.Image = r.Image
	if err := r.allowed(ctx); err != nil {
		return err
	}
	nodes, err := r.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if schedulable(n) {
			r.run.Nodes++
		}
	}
	if full := r.Focus == results.CertifiedFocus && !r.DryRun; full && r.run.Nodes < fullNodes {
		return fmt.Errorf("all conformance tests need %d nodes that are Ready and take pods, and there are %d of %d: join another machine, "+
			"or try a part with --focus", fullNodes, r.run.Nodes, len(nodes.Items))
	}
	return nil
}

// allowed returns an error unless the user may do everything: the tests can, and nobody may give rights that he does not have.
func (r *Runner) allowed(ctx context.Context) error {
	all := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Version: "*", Resource: "*"},
	}}
	answer, err := r.api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, all, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking what the kubeconfig's user may do: %w", err)
	}
	if answer.Status.Allowed {
		return nil
	}
	user := "user"
	if me, err := r.api.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err == nil {
		user = fmt.Sprintf("user %.200q", me.Status.UserInfo.Username)
	}
	return exitcode.With(exitcode.Unreachable, errors.New("the kubeconfig's "+user+" may not do everything in the cluster, which the tests need: "+
		"use an administrator's; coracle kubeconfig prints one on a server"))
}

// schedulable reports whether a node takes any pod.
func schedulable(n corev1.Node) bool {
	ready := false
	for _, c := range n.Status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			return false
		}
	}
	return ready && !n.Spec.Unschedulable
}
