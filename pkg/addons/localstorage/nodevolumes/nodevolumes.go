// Package nodevolumes is an admission plugin of the API server that restricts what a node may do with local volumes, and
// refuses sizes that no node would enforce.
package nodevolumes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Name is the plugin's name, for --disable-admission-plugins.
const Name = "CoracleNodeVolumes"

// Plugin restricts a node to its own local volumes and to the claims that wait for them. RBAC allows each node to create
// volumes; without the plugin, root on one node could create a volume of any directory of another node.
type Plugin struct {
	*admission.Handler
	client kubernetes.Interface
}

// New returns the plugin. The API server gives it its client.
func New() *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// SetExternalKubeClientSet sets the client of the API server.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization returns an error if the client is missing.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil {
		return fmt.Errorf("%s has no client", Name)
	}
	return nil
}

// Validate refuses changes of volumes and claims that are not the node's, and larger sizes that would not be enforced.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != core.GroupName {
		return nil
	}
	node, isNode := strings.CutPrefix(a.GetUserInfo().GetName(), pki.NodeUser)
	if !isNode {
		return p.grows(ctx, a)
	}
	var err error
	switch resource := a.GetResource().Resource; {
	case resource == "persistentvolumes":
		err = p.volume(ctx, a, node)
	case resource == "persistentvolumeclaims" && a.GetSubresource() == "status":
		err = p.status(ctx, a, node)
	case resource == "persistentvolumeclaims":
		err = givesBack(a, node)
	}
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("node %s: %w", node, err))
	}
	return nil
}

func (p *Plugin) volume(ctx context.Context, a admission.Attributes, node string) error {
	switch a.GetOperation() {
	case admission.Create:
		pv, _ := a.GetObject().(*core.PersistentVolume)
		if err := ownVolume(pv, node); err != nil {
			return err
		}
		return p.waits(ctx, pv, node)
	case admission.Delete:
		pv, _ := a.GetOldObject().(*core.PersistentVolume)
		return ownVolume(pv, node)
	}
	was, _ := a.GetOldObject().(*core.PersistentVolume)
	is, _ := a.GetObject().(*core.PersistentVolume)
	for _, pv := range []*core.PersistentVolume{was, is} {
		if err := ownVolume(pv, node); err != nil {
			return err
		}
	}
	allowed := was.DeepCopy()
	allowed.Spec.Capacity = is.Spec.Capacity
	allowed.Annotations, allowed.Finalizers = is.Annotations, is.Finalizers
	ignoreBookkeeping(&allowed.ObjectMeta, is.ObjectMeta)
	if !equality.Semantic.DeepEqual(allowed, is) {
		return fmt.Errorf("it may change the capacity, annotations and finalizers of volume %s, and nothing else", is.Name)
	}
	return nil
}

// ownVolume returns an error that says why a node may not create, change or delete a volume.
func ownVolume(pv *core.PersistentVolume, node string) error {
	switch {
	case pv == nil:
		return errors.New("the object is not a volume")
	case pv.Annotations[localpath.ProvisionedBy] != localpath.Provisioner:
		return fmt.Errorf("volume %s is not of provisioner %s", pv.Name, localpath.Provisioner)
	case pv.Labels[localpath.NodeLabel] != node || !onlyOn(pv.Spec.NodeAffinity, node):
		return fmt.Errorf("volume %s is not one of this node alone", pv.Name)
	case pv.Spec.Local == nil && pv.Spec.HostPath == nil:
		return fmt.Errorf("volume %s is neither local nor hostPath", pv.Name)
	case pv.Spec.ClaimRef == nil:
		return fmt.Errorf("volume %s is for no claim", pv.Name)
	}
	return nil
}

// onlyOn reports whether pods with the volume can run on this node and on no other node.
func onlyOn(affinity *core.VolumeNodeAffinity, node string) bool {
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		return false
	}
	term := affinity.Required.NodeSelectorTerms[0]
	if len(term.MatchFields) != 0 || len(term.MatchExpressions) != 1 {
		return false
	}
	e := term.MatchExpressions[0]
	return e.Key == corev1.LabelHostname && e.Operator == core.NodeSelectorOpIn && len(e.Values) == 1 && e.Values[0] == node
}

// waits returns an error if the claim of a new volume does not wait for a volume on this node. Without this check a node
// could attract any pod.
func (p *Plugin) waits(ctx context.Context, pv *core.PersistentVolume, node string) error {
	ref := pv.Spec.ClaimRef
	claim, err := p.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the claim of volume %s: %w", pv.Name, err)
	}
	selected, set := claim.Annotations[localpath.SelectedNode]
	if !set && claim.Spec.StorageClassName != nil { // the class selects the node
		class, err := p.client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading the class of claim %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		selected = kube.OnlyNode(class)
	}
	if claim.UID != ref.UID || selected != node || claim.Annotations[localpath.ProvisionerOf] != localpath.Provisioner {
		return fmt.Errorf("claim %s/%s does not wait for a local volume of this node", ref.Namespace, ref.Name)
	}
	return nil
}

// ownClaim returns an error if a claim does not wait for a volume of this node.
func ownClaim(obj any, node string) error {
	claim, ok := obj.(*core.PersistentVolumeClaim)
	if !ok || claim.Annotations[localpath.SelectedNode] != node || claim.Annotations[localpath.ProvisionerOf] != localpath.Provisioner {
		return errors.New("the claim does not wait for a local volume of this node")
	}
	return nil
}

// status allows a node to change the status of the claims that wait for its volumes or have them, and nothing else: the API server itself only keeps the
// spec as it is. As with the kubelet's user in NodeRestriction, finalizers, owners and annotations are not the node's.
func (p *Plugin) status(ctx context.Context, a admission.Attributes, node string) error {
	was, _ := a.GetOldObject().(*core.PersistentVolumeClaim)
	is, ok := a.GetObject().(*core.PersistentVolumeClaim)
	if !ok || was == nil {
		return errors.New("the object is not a claim")
	}
	if err := ownClaim(was, node); err != nil && !p.has(ctx, was, node) {
		return err
	}
	allowed := was.DeepCopy()
	allowed.Status = is.Status
	ignoreBookkeeping(&allowed.ObjectMeta, is.ObjectMeta)
	if !equality.Semantic.DeepEqual(allowed, is) {
		return fmt.Errorf("it may change the status of claim %s/%s, and nothing else", is.Namespace, is.Name)
	}
	return nil
}

// has reports whether a claim that no scheduler assigned is bound to a local volume of the node: it was made for a class of this node alone, or names the volume.
func (p *Plugin) has(ctx context.Context, claim *core.PersistentVolumeClaim, node string) bool {
	if claim.Spec.VolumeName == "" || claim.Annotations[localpath.SelectedNode] != "" {
		return false
	}
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	return err == nil && pv.Annotations[localpath.ProvisionedBy] == localpath.Provisioner && pv.Labels[localpath.NodeLabel] == node &&
		pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == claim.UID
}

// givesBack allows a node to return a claim to the scheduler, and no other change of the claim.
func givesBack(a admission.Attributes, node string) error {
	if err := ownClaim(a.GetOldObject(), node); err != nil {
		return err
	}
	was, _ := a.GetOldObject().(*core.PersistentVolumeClaim)
	is, ok := a.GetObject().(*core.PersistentVolumeClaim)
	if !ok || a.GetOperation() != admission.Update {
		return errors.New("it may not remove claims")
	}
	allowed := was.DeepCopy()
	delete(allowed.Annotations, localpath.SelectedNode)
	if len(allowed.Annotations) == 0 && is.Annotations == nil {
		allowed.Annotations = nil
	}
	ignoreBookkeeping(&allowed.ObjectMeta, is.ObjectMeta)
	if !equality.Semantic.DeepEqual(allowed, is) {
		return fmt.Errorf("it may remove annotation %s of claim %s/%s, and change nothing else", localpath.SelectedNode, is.Namespace, is.Name)
	}
	return nil
}

// ignoreBookkeeping copies the fields that the API server itself changes with each update.
func ignoreBookkeeping(was *metav1.ObjectMeta, is metav1.ObjectMeta) {
	was.ManagedFields, was.ResourceVersion, was.Generation = is.ManagedFields, is.ResourceVersion, is.Generation
}
