package manifests

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

const (
	fieldManager = "coracle"
	// applyAnnotation with unlessEdited marks an object that is not updated once somebody else changed it, and never
	// deleted.
	applyAnnotation = "coracle.io/apply"
	unlessEdited    = "unless-edited"
)

// applier talks to the API server about objects of any kind.
type applier struct {
	dynamic   dynamic.Interface
	discovery discovery.DiscoveryInterface

	mu     sync.Mutex
	mapper meta.ResettableRESTMapper // nil until a kind is met that is not in known
}

// apply applies an object. The entry is empty for an object that is never deleted.
func (a *applier) apply(ctx context.Context, o *unstructured.Unstructured) (entry, error) {
	resource, namespace, err := a.resource(o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return entry{}, err
	}
	theirs := o.GetAnnotations()[applyAnnotation] == unlessEdited
	live, err := resource.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: fieldManager, Force: !theirs})
	switch {
	case theirs && apierrors.IsConflict(err):
		return entry{}, nil // somebody else changed a field that the file sets
	case theirs || err != nil:
		return entry{}, err
	}
	return entry{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: namespace, Name: o.GetName(), UID: live.GetUID()}, nil
}

// remove deletes an object that was applied, but not one that somebody created again under its name. An entry without a UID
// was recorded before it was applied; the object's managed fields tell whether it was.
func (a *applier) remove(ctx context.Context, e entry) error {
	kind := schema.FromAPIVersionAndKind(e.APIVersion, e.Kind)
	resource, _, err := a.resource(kind, e.Namespace)
	if meta.IsNoMatchError(err) { // the version is not served any more, but the object may be in another one
		resource, _, err = a.resource(kind.GroupKind().WithVersion(""), e.Namespace) // in the one that the API server prefers
	}
	if meta.IsNoMatchError(err) {
		return nil // the kind is gone, and its objects with it
	}
	if err != nil {
		return err
	}
	if e.UID == "" || e.Kind == "APIService" {
		live, err := resource.Get(ctx, e.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (e.UID == "" && !applied(live) || takenOver(live)) {
			return nil
		}
		if err != nil {
			return err
		}
		e.UID = cmp.Or(e.UID, live.GetUID())
	}
	policy := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &e.UID}}
	err = resource.Delete(ctx, e.Name, options)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// applied reports whether coracle applied an object.
func applied(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == fieldManager && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

// takenOver reports whether an APIService names a Service that coracle's file does not name: somebody installed another
// server for that API group, such as another metrics-server, which must be kept.
func takenOver(o *unstructured.Unstructured) bool {
	if _, leads, _ := unstructured.NestedMap(o.Object, "spec", "service"); !leads || o.GetKind() != "APIService" {
		return false
	}
	return !slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == fieldManager && f.FieldsV1 != nil && bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:service"`))
	})
}

// resource returns the client of a kind, and the namespace of an object: the default one if it names none.
func (a *applier) resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, string, error) {
	mapping, err := a.mapping(kind)
	if err != nil {
		return nil, "", err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		if namespace != "" {
			return nil, "", fmt.Errorf("%w: a %s is in no namespace; remove metadata.namespace", errFile, kind.Kind)
		}
		return a.dynamic.Resource(mapping.Resource), "", nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return a.dynamic.Resource(mapping.Resource).Namespace(namespace), namespace, nil
}

// errFile is the error of a file that only its author can correct.
var errFile = errors.New("cannot be applied")

func (a *applier) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if scope, ok := known[kind.GroupKind()]; ok && kind.Version == "v1" {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		return &meta.RESTMapping{Resource: plural, GroupVersionKind: kind, Scope: scope}, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mapper == nil {
		a.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(a.discovery))
	}
	return a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// forget drops cached discovery, which may be out of date and takes memory.
func (a *applier) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mapper = nil
}

// known are the kinds of embedded files. Discovery of them would cost each start a round trip and a megabyte.
var known = map[schema.GroupKind]meta.RESTScope{
	{Kind: "ConfigMap"}:      meta.RESTScopeNamespace,
	{Kind: "Namespace"}:      meta.RESTScopeRoot,
	{Kind: "Secret"}:         meta.RESTScopeNamespace,
	{Kind: "Service"}:        meta.RESTScopeNamespace,
	{Kind: "ServiceAccount"}: meta.RESTScopeNamespace,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:           meta.RESTScopeRoot,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:                       meta.RESTScopeRoot,
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}:                 meta.RESTScopeRoot,
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "PriorityLevelConfiguration"}: meta.RESTScopeRoot,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:                   meta.RESTScopeRoot,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}:            meta.RESTScopeRoot,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:                          meta.RESTScopeNamespace,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:                   meta.RESTScopeNamespace,
	{Group: "storage.k8s.io", Kind: "StorageClass"}:                             meta.RESTScopeRoot,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:                          meta.RESTScopeRoot,
}

// stages are the order in which kinds are applied: namespaces, kinds that others refer to, the rest, and at last webhooks
// and aggregated APIs, which intercept requests.
var stages = map[string]int{
	"Namespace":                0,
	"CustomResourceDefinition": 1, "PriorityClass": 1, "RuntimeClass": 1, "StorageClass": 1, "ResourceQuota": 1, "LimitRange": 1,
	"ServiceAccount": 2, "ConfigMap": 2, "Secret": 2,
	"ClusterRole": 2, "ClusterRoleBinding": 2, "Role": 2, "RoleBinding": 2,
	"MutatingWebhookConfiguration": 4, "ValidatingWebhookConfiguration": 4, "APIService": 4,
}

const (
	otherStage = 3
	lastStage  = 4
)

func stageOf(kind string) int {
	if stage, ok := stages[kind]; ok {
		return stage
	}
	return otherStage
}

// hopeless reports whether trying again cannot help. The refusal of an admission policy may pass when the policy changes.
func hopeless(err error) bool {
	return errors.Is(err, errFile) || invalidField(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// passing reports whether an error is likely to pass: a missing kind or namespace, an unavailable API server or webhook.
func passing(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && !errors.Is(err, errFile) ||
		apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err)
}

// reason is the message of an error, without the request that client-go adds.
func reason(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}
