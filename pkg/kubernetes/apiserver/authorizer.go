package apiserver

import (
	"context"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// policyTimeout limits how long a request waits for the authorizer's caches.
const policyTimeout = 5 * time.Second

// syncedAuthorizer delays refusals until the caches that the authorizer reads are filled. Upstream's server accepts
// requests before that and refuses them with 403, and clients log each refusal as an error: every watch of every node that
// finds a server again after its restart.
type syncedAuthorizer struct {
	authorizer.Authorizer
	caches []cache.DoneChecker
}

// newSyncedAuthorizer wraps the authorizer that reads roles and bindings, and for nodes' requests pods, from the informers.
func newSyncedAuthorizer(a authorizer.Authorizer, shared informers.SharedInformerFactory) authorizer.Authorizer {
	rbac := shared.Rbac().V1()
	s := syncedAuthorizer{Authorizer: a}
	for _, informer := range []cache.SharedIndexInformer{
		rbac.Roles().Informer(), rbac.RoleBindings().Informer(), rbac.ClusterRoles().Informer(), rbac.ClusterRoleBindings().Informer(),
		shared.Core().V1().Pods().Informer(),
	} {
		s.caches = append(s.caches, informer.HasSyncedChecker())
	}
	return s
}

// Authorize decides again if a refusal came from caches that were not filled yet.
func (s syncedAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	synced := s.synced()
	decision, reason, err := s.Authorizer.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow || synced || !s.wait(ctx) {
		return decision, reason, err
	}
	return s.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize is Authorize for decisions with conditions.
func (s syncedAuthorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	synced := s.synced()
	decision := s.Authorizer.ConditionsAwareAuthorize(ctx, a)
	if decision.IsAllow() || synced || !s.wait(ctx) {
		return decision
	}
	return s.Authorizer.ConditionsAwareAuthorize(ctx, a)
}

// wait reports whether all caches were filled before ctx was done or policyTimeout was over.
func (s syncedAuthorizer) wait(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	return cache.WaitFor(ctx, "", s.caches...)
}

func (s syncedAuthorizer) synced() bool {
	return !slices.ContainsFunc(s.caches, func(c cache.DoneChecker) bool { return !cache.IsDone(c) })
}
