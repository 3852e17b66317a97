package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	definitions cache.Store          // names and versions only
	first       watches              // classes and Gateways; empty while they are not defined
	rest        watches              // what refers to Gateways; empty while there is no need for it
	authorities watches              // ConfigMaps; empty while nothing names one
	late        map[string]time.Time // since when kinds are defined whose objects are not known
	lacking     []string             // those that are not waited for any longer
	kinds       map[string]bool      // that the API server served when it was asked last
	asked       time.Time
}

func newAPIFeed(f *feed) *apiFeed {
	return &apiFeed{feed: f, first: watches{}, rest: watches{}, authorities: watches{}, late: map[string]time.Time{}}
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

// installed returns the version of the installed definitions, "" if they are not installed, and whether they are those of the experimental channel.
func (f *apiFeed) installed() (version string, experimental bool) {
	o, found, _ := f.definitions.GetByKey(gatewayClasses + "." + v1.GroupName)
	if d, ok := o.(*metav1.PartialObjectMetadata); found && ok {
		return d.Annotations[definitions.BundleVersion], d.Annotations[definitions.Channel] == definitions.Experimental
	}
	return "", false
}

// refresh starts or stops the watches of classes and Gateways.
func (f *apiFeed) refresh(ctx context.Context) error {
	f.lacking = nil
	kinds := map[string]runtime.Object{gatewayClasses: &v1.GatewayClass{}, gateways: &v1.Gateway{}}
	if !f.defined(gatewayClasses) || !f.defined(gateways) {
		clear(kinds)
		f.first.endAll()
	}
	err := f.keep(ctx, f.first, kinds)
	if !f.served() {
		f.rest.endAll()
		f.authorities.endAll()
	}
	return err
}

// served reports whether classes and Gateways are known.
func (f *apiFeed) served() bool { return f.first.has(gatewayClasses) && f.first.has(gateways) }

func (f *apiFeed) defined(plural string) bool {
	_, defined, _ := f.definitions.GetByKey(plural + "." + v1.GroupName)
	return defined
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
	if !needed || !f.served() {
		f.rest.endAll()
		f.authorities.endAll()
		maps.DeleteFunc(f.late, func(plural string, _ time.Time) bool { return plural != gateways && plural != gatewayClasses })
		return nil
	}
	if err := f.keep(ctx, f.rest, attachable()); err != nil {
		return err
	}
	builtin := func(w watches, plural string, informer cache.SharedIndexInformer, trim cache.TransformFunc) error {
		if _, watched := w[plural]; !watched {
			within, stop := context.WithCancel(ctx)
			store, known := f.feed.watch(within, informer, trim)
			w[plural] = watching{store: store, known: known, stop: stop}
		}
		if !awaitSync(ctx, w[plural].known) {
			return fmt.Errorf("the API server does not answer with all %s yet", plural)
		}
		return nil
	}
	err := builtin(f.rest, namespaces, coreinformers.NewNamespaceInformer(client, 0, nil), kube.Trim(func(full, small *corev1.Namespace) { small.Labels = full.Labels }))
	if err != nil {
		return err
	}
	if !f.namesAuthorities() {
		f.authorities.endAll()
		return nil
	}
	return builtin(f.authorities, configMaps, coreinformers.NewConfigMapInformer(client, "", 0, nil), kube.Trim(trimConfigMap))
}

func trimConfigMap(c, small *corev1.ConfigMap) {
	if text, ok := c.Data[corev1.ServiceAccountRootCAKey]; ok {
		small.Data = map[string]string{corev1.ServiceAccountRootCAKey: text}
	}
}

// namesAuthorities reports whether an object names the certificates of authorities, which are in ConfigMaps.
func (f *apiFeed) namesAuthorities() bool {
	if f.rest.has("backendtlspolicies") && len(f.rest["backendtlspolicies"].store.ListKeys()) > 0 {
		return true
	}
	return slices.ContainsFunc(listed[*v1.Gateway](gateways, f.first), func(g *v1.Gateway) bool { return g.Spec.TLS != nil && g.Spec.TLS.Frontend != nil })
}
