package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/definitions"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// apiFeed watches the objects of the Gateway API: while its definitions are not installed, only whether they are; while there is no Gateway of our
// classes, only those and the classes.
type apiFeed struct {
	feed     *feed
	client   rest.Interface
	metadata metadata.Interface

	definitions cache.Store // names and versions only
	first       *watches    // classes and Gateways; nil while they are not defined
	rest        *watches    // what refers to Gateways; nil while there is no need for it
	authorities *watches    // ConfigMaps; nil while nothing names one
}

// watches are some that stop together.
type watches struct {
	stores map[string]cache.Store // by the plural of the kind
	stop   context.CancelFunc
}

func (w *watches) end() *watches {
	if w != nil {
		w.stop()
	}
	return nil
}

// The plurals of the kinds that are watched.
const (
	gatewayClasses = "gatewayclasses"
	gateways       = "gateways"
	configMaps     = "configmaps"
	namespaces     = "namespaces"
)

// attachable are the kinds that refer to Gateways or to what routes refer to.
func attachable() map[string]runtime.Object {
	return map[string]runtime.Object{
		"listenersets": &v1.ListenerSet{}, "httproutes": &v1.HTTPRoute{}, "grpcroutes": &v1.GRPCRoute{}, "tlsroutes": &v1.TLSRoute{},
		"tcproutes": &v1.TCPRoute{}, "udproutes": &v1.UDPRoute{}, "referencegrants": &v1.ReferenceGrant{}, "backendtlspolicies": &v1.BackendTLSPolicy{},
	}
}

// apiClient returns a client for the objects of the Gateway API.
func apiClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1.Install(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	version := schema.GroupVersion(v1.GroupVersion)
	config.APIPath, config.GroupVersion = "/apis", &version
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

// start watches which definitions there are, and returns when that is known, or false when ctx is done before.
func (f *apiFeed) start(ctx context.Context) bool {
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	informer := metadatainformer.NewFilteredMetadataInformer(f.metadata, resource, "", 0, nil, nil).Informer()
	var known cache.DoneChecker
	f.definitions, known = f.feed.watch(ctx, informer, kube.Trim(func(full, small *metav1.PartialObjectMetadata) {
		if strings.HasSuffix(full.Name, "."+v1.GroupName) {
			small.Annotations = map[string]string{definitions.BundleVersion: full.Annotations[definitions.BundleVersion], definitions.Channel: full.Annotations[definitions.Channel]}
		}
	}))
	return cache.WaitFor(ctx, "", known)
}

// installed returns the version and the channel of the installed definitions, "" if they are not installed.
func (f *apiFeed) installed() (string, string) {
	o, found, _ := f.definitions.GetByKey(gatewayClasses + "." + v1.GroupName)
	if d, ok := o.(*metav1.PartialObjectMetadata); found && ok {
		return d.Annotations[definitions.BundleVersion], d.Annotations[definitions.Channel]
	}
	return "", ""
}

// errNotServed is the error while definitions are installed that the API server does not serve yet.
var errNotServed = errors.New("the API server does not serve the Gateway API yet")

// refresh starts or stops the watches of classes and Gateways.
func (f *apiFeed) refresh(ctx context.Context) error {
	_, classes, _ := f.definitions.GetByKey(gatewayClasses + "." + v1.GroupName)
	_, all, _ := f.definitions.GetByKey(gateways + "." + v1.GroupName)
	switch {
	case !(classes && all):
		f.first, f.rest, f.authorities = f.first.end(), f.rest.end(), f.authorities.end()
		return nil
	case f.first != nil:
		return nil
	}
	served, err := f.served(ctx)
	if err != nil {
		return err
	}
	if !served[gatewayClasses] || !served[gateways] {
		return errNotServed
	}
	f.first = f.watch(ctx, map[string]runtime.Object{gatewayClasses: &v1.GatewayClass{}, gateways: &v1.Gateway{}})
	return nil
}

// served returns the plurals of the kinds that the API server serves.
func (f *apiFeed) served(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	data, err := f.client.Get().AbsPath("/apis/" + v1.GroupVersion.String()).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("asking which kinds of the Gateway API are served: %w", err)
	}
	for _, r := range list.APIResources {
		out[r.Name] = true
	}
	return out, nil
}

// watch starts watches, and returns when their objects are known or ctx is done.
func (f *apiFeed) watch(ctx context.Context, kinds map[string]runtime.Object) *watches {
	ctx, stop := context.WithCancel(ctx)
	w := &watches{stores: map[string]cache.Store{}, stop: stop}
	var known []cache.DoneChecker
	for plural, object := range kinds {
		informer := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(f.client, plural, "", fields.Everything()), object, 0, cache.Indexers{})
		store, done := f.feed.watch(ctx, informer, trimAPI)
		w.stores[plural] = store
		known = append(known, done)
	}
	cache.WaitFor(ctx, "", known...)
	return w
}

// trimAPI drops what is large and not read.
func trimAPI(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		if a := o.GetAnnotations(); a[corev1.LastAppliedConfigAnnotation] != "" {
			delete(a, corev1.LastAppliedConfigAnnotation)
			o.SetAnnotations(a)
		}
	}
	return kube.DropManagedFields(obj)
}

// need starts or stops the watches of what refers to Gateways.
func (f *apiFeed) need(ctx context.Context, client kubernetes.Interface, needed bool) error {
	if !needed || f.first == nil {
		f.rest, f.authorities = f.rest.end(), f.authorities.end()
		return nil
	}
	if f.rest == nil {
		served, err := f.served(ctx)
		if err != nil {
			return err
		}
		kinds := attachable()
		for plural := range kinds {
			_, defined, _ := f.definitions.GetByKey(plural + "." + v1.GroupName)
			if defined && !served[plural] {
				return errNotServed
			}
		}
		maps.DeleteFunc(kinds, func(plural string, _ runtime.Object) bool { return !served[plural] })
		f.rest = f.watch(ctx, kinds)
		within, stop := context.WithCancel(ctx)
		end := f.rest.stop
		f.rest.stop = func() { stop(); end() }
		store, known := f.feed.watch(within, coreinformers.NewNamespaceInformer(client, 0, nil), kube.Trim(func(full, small *corev1.Namespace) { small.Labels = full.Labels }))
		f.rest.stores[namespaces] = store
		cache.WaitFor(within, "", known)
	}
	switch named := f.namesAuthorities(); {
	case named && f.authorities == nil:
		within, stop := context.WithCancel(ctx)
		store, known := f.feed.watch(within, coreinformers.NewConfigMapInformer(client, "", 0, nil), kube.Trim(trimConfigMap))
		f.authorities = &watches{stores: map[string]cache.Store{configMaps: store}, stop: stop}
		cache.WaitFor(within, "", known)
	case !named:
		f.authorities = f.authorities.end()
	}
	return nil
}

func trimConfigMap(c, small *corev1.ConfigMap) {
	if text, ok := c.Data[corev1.ServiceAccountRootCAKey]; ok {
		small.Data = map[string]string{corev1.ServiceAccountRootCAKey: text}
	}
}

// namesAuthorities reports whether an object names the certificates of authorities, which are in ConfigMaps.
func (f *apiFeed) namesAuthorities() bool {
	if s := f.rest.stores["backendtlspolicies"]; s != nil && len(s.ListKeys()) > 0 {
		return true
	}
	return slices.ContainsFunc(kube.ListOf[*v1.Gateway](f.first.stores[gateways]), func(g *v1.Gateway) bool { return g.Spec.TLS != nil && g.Spec.TLS.Frontend != nil })
}
