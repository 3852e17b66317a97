package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
)

// as returns the clients for everything that is done for a chart: reading what it names, reading and writing its release, and
// each action of Helm. They impersonate the chart's ServiceAccount. Without one they are the administrator's, which only
// charts of some namespaces get. The controller itself writes the HelmChart's status and finalizer, and Events.
func (c *controller) as(ctx context.Context, ch *chart) (*clients, error) {
	account := ch.Spec.ServiceAccountName
	switch {
	case account == "" && len(c.Namespaces) > 0 && !slices.Contains(c.Namespaces, ch.Namespace):
		return nil, problem{reasonNoAccount, fmt.Errorf("a HelmChart in namespace %s needs spec.serviceAccountName, because --helm-controller-namespaces does not list the namespace", ch.Namespace)}
	case account == "":
		return c.clients, nil
	case len(validation.IsDNS1123Subdomain(account)) > 0:
		return nil, problem{reasonNoAccount, fmt.Errorf("serviceAccountName: %q is not the name of a ServiceAccount", account)}
	}
	// The API server impersonates an account that is gone, too, and its bindings may still be there.
	_, err := c.clients.core.CoreV1().ServiceAccounts(ch.Namespace).Get(ctx, account, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, problem{reasonNoAccount, fmt.Errorf("serviceAccountName: there is no ServiceAccount %s in namespace %s", account, ch.Namespace)}
	case err != nil:
		return nil, fmt.Errorf("reading ServiceAccount %s: %w", account, err)
	}
	config := rest.CopyConfig(c.clients.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + ch.Namespace + ":" + account}
	return newClients(config)
}

// history lists the revisions of a chart's release, oldest first.
func (c *controller) history(ctx context.Context, ch *chart) ([]revision, error) {
	clients, err := c.as(ctx, ch)
	if err != nil {
		return nil, err
	}
	return clients.history(ctx, ch)
}

// lostWithNamespace reports whether an error means that a chart of a namespace that is being deleted has lost its account's
// permissions, which are deleted too: the namespace must not wait for it forever.
func (c *controller) lostWithNamespace(ctx context.Context, ch *chart, err error) bool {
	var p problem
	if !apierrors.IsForbidden(err) && !(errors.As(err, &p) && p.reason == reasonNoAccount) {
		return false
	}
	ns, err := c.clients.core.CoreV1().Namespaces().Get(ctx, ch.Namespace, metav1.GetOptions{})
	return err == nil && ns.DeletionTimestamp != nil
}
