// Package admit is an admission plugin of the API server: which pods may have the annotation with which they send with any address.
package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/coracle-dev/coracle/pkg/network/portguard"
)

// Name is the plugin's name, for --disable-admission-plugins.
const Name = "CoraclePodAddresses"

// Plugin lets a pod have the annotation only in a namespace that has it too. None of Kubernetes' roles for users within a namespace may
// change the namespace itself.
type Plugin struct {
	*admission.Handler
	namespaces corelisters.NamespaceLister
}

// New returns the plugin. The API server gives it its informers.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)} }

// SetExternalKubeInformerFactory sets the informers of the API server.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.namespaces = f.Core().V1().Namespaces().Lister()
	p.SetReadyFunc(f.Core().V1().Namespaces().Informer().HasSynced)
}

// ValidateInitialization returns an error if the informers are missing.
func (p *Plugin) ValidateInitialization() error {
	if p.namespaces == nil {
		return fmt.Errorf("%s has no informers", Name)
	}
	return nil
}

// Validate refuses the annotation where it is not permitted. Kubelets may report static pods, which root has put on their machines.
func (p *Plugin) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	kind := a.GetResource().GroupResource()
	if kind.Group != "" || kind.Resource != "pods" && kind.Resource != "bindings" || !exempt(a.GetObject()) || exempt(a.GetOldObject()) ||
		slices.Contains(a.GetUserInfo().GetGroups(), user.NodesGroup) {
		return nil
	}
	if !p.WaitForReady() {
		return admission.NewForbidden(a, errors.New("the API server does not know the namespaces yet; try again"))
	}
	namespace, err := p.namespaces.Get(a.GetNamespace())
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("reading the pod's namespace: %w", err))
	}
	if !portguard.Exempt(namespace.Annotations) {
		return admission.NewForbidden(a, fmt.Errorf("annotation %s needs the permission of an administrator: kubectl annotate namespace %s %[1]s=true",
			portguard.Annotation, a.GetNamespace()))
	}
	return nil
}

// exempt reports whether an object has the annotation; a Binding passes its annotations on to the pod.
func exempt(object any) bool {
	o, err := meta.Accessor(object)
	return err == nil && portguard.Exempt(o.GetAnnotations())
}
