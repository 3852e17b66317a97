package gateway

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// feed watches Ingresses and their classes, and what they refer to only while there is an Ingress of our classes.
type feed struct {
	client  kubernetes.Interface
	changed chan struct{} // receives a value after each relevant change
	status  func()        // called after a change of nothing but the status of a route or policy

	classes, ingresses cache.Store
	further            *further     // nil while there is no need for it
	challenges         *namedSecret // nil while there is no need for it
	certificates       map[types.NamespacedName]certificate
	secrets            map[types.NamespacedName]namedSecret // those with passwords
	unread             map[types.NamespacedName]string      // of them, with the reason
}

// further is what Ingresses refer to.
type further struct {
	services, slices, secrets, nodes, agents cache.Store
	known                                    []cache.DoneChecker
	stop                                     context.CancelFunc
}

// certificate is one that was read, of a version of its Secret.
type certificate struct {
	version string
	translate.Certificate
}

func newFeed(client kubernetes.Interface) *feed {
	return &feed{
		client: client, changed: make(chan struct{}, 1), status: func() {}, certificates: map[types.NamespacedName]certificate{},
		secrets: map[types.NamespacedName]namedSecret{}, unread: map[types.NamespacedName]string{},
	}
}

// start watches Ingresses and classes, and returns when they are known, or false when ctx is done before.
func (f *feed) start(ctx context.Context) bool {
	var classes, ingresses cache.DoneChecker
	f.classes, classes = f.watch(ctx, networkinginformers.NewIngressClassInformer(f.client, 0, nil), kube.DropManagedFields)
	f.ingresses, ingresses = f.watch(ctx, networkinginformers.NewIngressInformer(f.client, "", 0, nil), kube.DropManagedFields)
	return cache.WaitFor(ctx, "", classes, ingresses)
}

// need starts or stops the watches of what Ingresses refer to, and returns when they are in sync. Without them nothing new may be served: all
// backends would be missing.
func (f *feed) need(ctx context.Context, needed bool) error {
	switch {
	case needed && f.further == nil:
		ctx, stop := context.WithCancel(ctx)
		var synced [5]cache.DoneChecker
		f.further = &further{stop: stop}
		f.further.services, synced[0] = f.watch(ctx, coreinformers.NewServiceInformer(f.client, "", 0, nil), kube.Trim(trimService))
		f.further.slices, synced[1] = f.watch(ctx, discoveryinformers.NewEndpointSliceInformer(f.client, "", 0, nil), kube.Trim(trimSlice))
		ofTLS := func(o *metav1.ListOptions) { o.FieldSelector = "type=" + string(corev1.SecretTypeTLS) }
		f.further.secrets, synced[2] = f.watch(ctx, coreinformers.NewFilteredSecretInformer(f.client, "", 0, nil, ofTLS), kube.Trim(trimSecret))
		ofServers := func(o *metav1.ListOptions) { o.LabelSelector = kube.ControlPlaneLabel + "=true" }
		f.further.nodes, synced[3] = f.watch(ctx, coreinformers.NewFilteredNodeInformer(f.client, 0, nil, ofServers), kube.Trim(trimNode))
		ofAgents := func(o *metav1.ListOptions) {
			o.LabelSelector = kube.GatewayLabel + "=true," + kube.ControlPlaneLabel + "!=true"
		}
		f.further.agents, synced[4] = f.watch(ctx, coreinformers.NewFilteredNodeInformer(f.client, 0, nil, ofAgents), kube.Trim(trimNode))
		f.further.known = synced[:]
	case !needed && f.further != nil:
		f.further.stop()
		f.further = nil
		clear(f.certificates)
	}
	if f.further != nil && !awaitSync(ctx, f.further.known...) {
		return errors.New("the API server does not answer with all Services, endpoints, certificates and nodes yet")
	}
	return nil
}

// watch watches objects in the form that trim returns, and announces changes of that form.
func (f *feed) watch(ctx context.Context, informer cache.SharedIndexInformer, trim cache.TransformFunc) (cache.Store, cache.DoneChecker) {
	kube.QuietWhenGone(informer)
	_ = informer.SetTransform(trim) // it fails only after the informer is started
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f.notify() },
		UpdateFunc: func(old, obj any) {
			switch {
			case kube.SameContent(old, obj):
			case onlyStatus(old, obj):
				f.status()
			default:
				f.notify()
			}
		},
		DeleteFunc: func(any) { f.notify() },
	})
	go informer.RunWithContext(ctx)
	return informer.GetStore(), informer.HasSyncedChecker()
}

// notify announces a change.
func (f *feed) notify() {
	select {
	case f.changed <- struct{}{}:
	default: // a change is announced already
	}
}

// objects returns what there is.
func (f *feed) objects() translate.Objects {
	o := translate.Objects{
		Classes: kube.ListOf[*networkingv1.IngressClass](f.classes), Ingresses: kube.ListOf[*networkingv1.Ingress](f.ingresses),
		Certificates: map[types.NamespacedName]translate.Certificate{},
	}
	if f.further == nil {
		return o
	}
	o.Passwords = f.passwords()
	o.Services, o.Slices = kube.ListOf[*corev1.Service](f.further.services), kube.ListOf[*discoveryv1.EndpointSlice](f.further.slices)
	for _, s := range kube.ListOf[*corev1.Secret](f.further.secrets) {
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		if f.certificates[key].version != s.ResourceVersion { // reading one takes long: not again for each change of an endpoint
			f.certificates[key] = certificate{s.ResourceVersion, translate.CertificateOf(s)}
		}
		o.Certificates[key] = f.certificates[key].Certificate
	}
	for key := range f.certificates {
		if _, ok := o.Certificates[key]; !ok {
			delete(f.certificates, key)
		}
	}
	return o
}

// The fields that a translation reads.

func trimService(s, small *corev1.Service) {
	small.Spec = corev1.ServiceSpec{Type: s.Spec.Type, IPFamilies: s.Spec.IPFamilies, Ports: s.Spec.Ports, ExternalIPs: s.Spec.ExternalIPs}
	small.Status.LoadBalancer = s.Status.LoadBalancer
}

func trimSlice(s, small *discoveryv1.EndpointSlice) {
	if name := s.Labels[discoveryv1.LabelServiceName]; name != "" {
		small.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	}
	small.AddressType, small.Ports = s.AddressType, s.Ports
	for _, e := range s.Endpoints {
		small.Endpoints = append(small.Endpoints, discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions})
	}
}

func trimSecret(s, small *corev1.Secret) {
	small.Data = map[string][]byte{}
	if issuer := s.Annotations[translate.AnnotationIssuer]; issuer != "" {
		small.Annotations = map[string]string{translate.AnnotationIssuer: issuer}
	}
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		small.Data[key] = s.Data[key]
	}
}

func trimNode(n, small *corev1.Node) {
	small.Labels = map[string]string{kube.ControlPlaneLabel: n.Labels[kube.ControlPlaneLabel]}
	small.Status.Addresses = n.Status.Addresses
	small.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: kube.NodeReadiness(n)}}
}
