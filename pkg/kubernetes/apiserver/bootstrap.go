package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kube-aggregator/pkg/apiserver"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// bootstrap replaces three post-start hooks of upstream, which write what every cluster must have before it is ready: the
// default roles and bindings, two priority classes, and the rules of flow control. Upstream's first two hooks sleep for a
// second before they begin, and all send their up to 300 requests one after the other, which is more than half of the time
// of a start. The work here uses upstream's data and reconciliation, but starts at once, lists each kind once, and sends
// requests in parallel. See kubernetes#97119; it can go when upstream's hooks do the same.
var bootstrap = map[string]work{
	rbacrest.PostStartHookName:        ensurePolicy,
	schedulingrest.PostStartHookName:  ensurePriorityClasses,
	flowcontrolrest.PostStartHookName: ensureFlowControl,
}

// work is what a hook does. The client has all rights; the informers are the server's own.
type work func(context.Context, *kubernetes.Clientset, informers.SharedInformerFactory) error

const (
	bootstrapTries   = 30 // a second apart, as upstream does
	bootstrapWorkers = 6  // on two cores more would only delay the other components that start
)

// inProcess makes a post-start hook that does the work with a client that calls the server's handler directly.
func inProcess(server *apiserver.APIAggregator, informers informers.SharedInformerFactory, do work) genericserver.PostStartHookFunc {
	return func(ctx genericserver.PostStartHookContext) error {
		cfg := handlerConfig(server.GenericAPIServer.Handler, ctx.LoopbackClientConfig)
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		for try := 1; ; try++ {
			err := do(ctx, client, informers)
			if err == nil || try == bootstrapTries {
				return err
			}
			if lifecycle.Sleep(ctx, time.Second) != nil {
				return nil
			}
		}
	}
}

func ensurePriorityClasses(ctx context.Context, client *kubernetes.Clientset, _ informers.SharedInformerFactory) error {
	classes := client.SchedulingV1().PriorityClasses()
	for _, class := range schedulingv1.SystemPriorityClasses() {
		_, err := classes.Get(ctx, class.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = classes.Create(ctx, class, metav1.CreateOptions{})
		}
		if err := made(err, "priority class "+class.Name); err != nil {
			return err
		}
	}
	return nil
}

// made returns the error of a request that makes what is named, unless it exists.
func made(err error, what string) error {
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making %s: %w", what, err)
	}
	return nil
}

// ensurePolicy brings the default roles and bindings up to what this version of Kubernetes wants.
func ensurePolicy(ctx context.Context, client *kubernetes.Clientset, _ informers.SharedInformerFactory) error {
	existing, err := listPolicy(ctx, client)
	if err != nil {
		return err
	}
	var work []func() error
	for _, role := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		work = append(work, existing.role(reconciliation.ClusterRoleRuleOwner{ClusterRole: &role},
			reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()}))
	}
	for _, binding := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		work = append(work, existing.binding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding},
			reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()}))
	}
	namespaces := client.CoreV1().Namespaces()
	for _, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			work = append(work, existing.role(reconciliation.RoleRuleOwner{Role: &role},
				reconciliation.RoleModifier{Client: client.RbacV1(), NamespaceClient: namespaces}))
		}
	}
	for _, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			work = append(work, existing.binding(reconciliation.RoleBindingAdapter{RoleBinding: &binding},
				reconciliation.RoleBindingClientAdapter{Client: client.RbacV1(), NamespaceClient: namespaces}))
		}
	}
	return parallel(work)
}

// key names a role or a binding.
type key struct{ namespace, name string }

// policy holds the roles and bindings that exist, listed once instead of read one by one.
type policy struct {
	roles    map[key]reconciliation.RuleOwner
	bindings map[key]reconciliation.RoleBinding
}

func listPolicy(ctx context.Context, client *kubernetes.Clientset) (policy, error) {
	p := policy{map[key]reconciliation.RuleOwner{}, map[key]reconciliation.RoleBinding{}}
	all := metav1.ListOptions{}
	clusterRoles, err1 := client.RbacV1().ClusterRoles().List(ctx, all)
	clusterBindings, err2 := client.RbacV1().ClusterRoleBindings().List(ctx, all)
	roles, err3 := client.RbacV1().Roles("").List(ctx, all)
	bindings, err4 := client.RbacV1().RoleBindings("").List(ctx, all)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return p, fmt.Errorf("listing roles and bindings: %w", err)
	}
	for i := range clusterRoles.Items {
		r := &clusterRoles.Items[i]
		p.roles[key{"", r.Name}] = reconciliation.ClusterRoleRuleOwner{ClusterRole: r}
	}
	for i := range roles.Items {
		r := &roles.Items[i]
		p.roles[key{r.Namespace, r.Name}] = reconciliation.RoleRuleOwner{Role: r}
	}
	for i := range clusterBindings.Items {
		b := &clusterBindings.Items[i]
		p.bindings[key{"", b.Name}] = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: b}
	}
	for i := range bindings.Items {
		b := &bindings.Items[i]
		p.bindings[key{b.Namespace, b.Name}] = reconciliation.RoleBindingAdapter{RoleBinding: b}
	}
	return p, nil
}

// role returns the work of reconciling one role.
func (p policy) role(want reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) func() error {
	return reconcile(reconciliation.RuleOwnerModifier(listedRoles{client, p}), client, func(from reconciliation.RuleOwnerModifier) error {
		opts := reconciliation.ReconcileRoleOptions{Role: want, Client: from, Confirm: true}
		if _, err := opts.Run(); err != nil {
			return fmt.Errorf("reconciling role %s: %w", want.GetName(), err)
		}
		return nil
	})
}

// binding is role for a binding.
func (p policy) binding(want reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) func() error {
	return reconcile(reconciliation.RoleBindingModifier(listedBindings{client, p}), client, func(from reconciliation.RoleBindingModifier) error {
		opts := reconciliation.ReconcileRoleBindingOptions{RoleBinding: want, Client: from, Confirm: true}
		if _, err := opts.Run(); err != nil {
			return fmt.Errorf("reconciling binding %s: %w", want.GetName(), err)
		}
		return nil
	})
}

// reconcile returns work that calls do with the lists, and again with the client: after a conflict the listed object is outdated.
func reconcile[T any](listed, client T, do func(T) error) func() error {
	return func() error {
		from := listed
		return retry.OnError(retry.DefaultBackoff, retriable, func() error {
			err := do(from)
			from = client
			return err
		})
	}
}

func retriable(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsAlreadyExists(err)
}

// listedRoles answers Get from the lists.
type listedRoles struct {
	reconciliation.RuleOwnerModifier
	p policy
}

func (l listedRoles) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	if r, ok := l.p.roles[key{namespace, name}]; ok {
		return r, nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
}

// listedBindings answers Get from the lists.
type listedBindings struct {
	reconciliation.RoleBindingModifier
	p policy
}

func (l listedBindings) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	if b, ok := l.p.bindings[key{namespace, name}]; ok {
		return b, nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("rolebindings"), name)
}

// parallel does all work, bootstrapWorkers at a time, and returns the first error.
func parallel(work []func() error) error {
	var workers errgroup.Group
	workers.SetLimit(bootstrapWorkers)
	for _, do := range work {
		workers.Go(do)
	}
	return workers.Wait()
}
