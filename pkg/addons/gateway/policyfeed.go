package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/routepolicy"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// policyFeed watches RoutePolicies while something is served that they could be for.
type policyFeed struct {
	feed    *feed
	dynamic dynamic.Interface

	store cache.Store // nil while there is no need for it
	known cache.DoneChecker
	stop  context.CancelFunc
}

func newPolicyFeed(f *feed, kubeconfig string) (*policyFeed, error) {
	client, err := policyClient(kubeconfig, func(*rest.Config) {})
	return &policyFeed{feed: f, dynamic: client}, err
}

// policyClient returns a client for RoutePolicies.
func policyClient(kubeconfig string, change func(*rest.Config)) (*dynamic.DynamicClient, error) {
	config, err := kube.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	change(config)
	return dynamic.NewForConfig(config)
}

// need starts or stops the watch, and returns when it is in sync. Without it nothing new may be served: a route could be open that a policy closes.
func (f *policyFeed) need(ctx context.Context, needed bool) error {
	switch {
	case !needed && f.store != nil:
		f.stop()
		f.store = nil
		return nil
	case !needed:
		return nil
	}
	if f.store == nil {
		if defined, err := f.defined(ctx); !defined || err != nil {
			return err
		}
		var within context.Context
		within, f.stop = context.WithCancel(ctx)
		f.store, f.known = f.feed.watch(within, dynamicinformer.NewFilteredDynamicInformer(f.dynamic, routepolicy.API(), "", 0, nil, nil).Informer(), read)
	}
	if !awaitSync(ctx, f.known) {
		if defined, err := f.defined(ctx); !defined && err == nil { // it was deleted meanwhile
			f.stop()
			f.store = nil
			return nil
		}
		return errors.New("the API server does not answer with all RoutePolicies yet")
	}
	return nil
}

// defined reports whether there is the kind; an error says that it is not known.
func (f *policyFeed) defined(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if _, err := f.dynamic.Resource(routepolicy.API()).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
		definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		_, defined := f.dynamic.Resource(definitions).Get(ctx, routepolicy.API().GroupResource().String(), metav1.GetOptions{})
		if apierrors.IsNotFound(defined) {
			return false, nil // somebody has deleted the kind, and with it all policies
		}
		return false, fmt.Errorf("the API server does not serve RoutePolicies yet: %w", err)
	} else if err != nil {
		return false, fmt.Errorf("asking for RoutePolicies: %w", err)
	}
	return true, nil
}

// read makes of what comes from the API what the gateway reads.
func read(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	return routepolicy.Read(u), nil
}

// list returns the policies.
func (f *policyFeed) list() []*routepolicy.RoutePolicy {
	if f.store == nil {
		return nil
	}
	return kube.ListOf[*routepolicy.RoutePolicy](f.store)
}

// secrets returns the Secrets that Ingresses and policies name.
func (f *policyFeed) secrets(served []*networkingv1.Ingress) map[types.NamespacedName]bool {
	out := translate.PasswordSecrets(served)
	maps.Copy(out, routepolicy.Secrets(f.list()))
	return out
}
