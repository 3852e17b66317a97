package nodevolumes

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
)

// nodesVolume is what node a makes for its claim.
func nodesVolume() *core.PersistentVolume {
	return &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1", Labels: map[string]string{localpath.NodeLabel: "a"},
			Annotations: map[string]string{localpath.ProvisionedBy: localpath.Provisioner},
		},
		Spec: core.PersistentVolumeSpec{
			Capacity:               core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: "/data/pvc-1"}},
			ClaimRef:               &core.ObjectReference{Namespace: "shop", Name: "data", UID: "1"},
			NodeAffinity: &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
				MatchExpressions: []core.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{"a"}}},
			}}}},
		},
	}
}

func waiting(node string) map[string]string {
	return map[string]string{localpath.SelectedNode: node, localpath.ProvisionerOf: localpath.Provisioner}
}

func nodesClaim() *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "1", Annotations: waiting("a")}}
}

type request struct {
	user, resource, sub string
	op                  admission.Operation
	is, was             runtime.Object
}

func check(t *testing.T, r request) error {
	t.Helper()
	pinned := "pinned"
	p := &Plugin{client: fake.NewClientset(
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: types.UID("1"), Annotations: waiting("a")}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other", UID: types.UID("2"), Annotations: waiting("b")}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pinned", UID: types.UID("3"),
			Annotations: map[string]string{localpath.ProvisionerOf: localpath.Provisioner}}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &pinned}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: pinned}, AllowedTopologies: []corev1.TopologySelectorTerm{{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelHostname, Values: []string{"a"}}}}}},
		ofA("limited", "enforced (xfs)"), ofA("unlimited", "not enforced: ext4 without project quotas"),
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "another's", Annotations: map[string]string{localpath.QuotaAnnotation: "not enforced"}}},
	)}
	return p.Validate(context.Background(), admission.NewAttributesRecord(r.is, r.was, schema.GroupVersionKind{}, "shop", "x",
		schema.GroupVersionResource{Version: "v1", Resource: r.resource}, r.sub, r.op, nil, false, &user.DefaultInfo{Name: r.user}), nil)
}

// ofA is a volume of node a, which is bound to the claim with UID 9.
func ofA(name, quota string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{localpath.NodeLabel: "a"},
			Annotations: map[string]string{localpath.QuotaAnnotation: quota, localpath.ProvisionedBy: localpath.Provisioner}},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: "9"}},
	}
}

func TestNodeVolumes(t *testing.T) {
	change := func(f func(*core.PersistentVolume)) *core.PersistentVolume {
		pv := nodesVolume()
		f(pv)
		return pv
	}
	const a, b = "system:coracle:node:a", "system:coracle:node:b"
	elsewhere := change(func(pv *core.PersistentVolume) {
		pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"a", "b"}
	})
	everywhere := change(func(pv *core.PersistentVolume) { pv.Spec.NodeAffinity = nil })
	for name, c := range map[string]struct {
		r    request
		want string
	}{
		"own":            {request{a, "persistentvolumes", "", admission.Create, nodesVolume(), nil}, ""},
		"another's":      {request{b, "persistentvolumes", "", admission.Create, nodesVolume(), nil}, "not one of this node alone"},
		"two nodes":      {request{a, "persistentvolumes", "", admission.Create, elsewhere, nil}, "not one of this node alone"},
		"everywhere":     {request{a, "persistentvolumes", "", admission.Create, everywhere, nil}, "not one of this node alone"},
		"administrator":  {request{"admin", "persistentvolumes", "", admission.Create, everywhere, nil}, ""},
		"no provisioner": {request{a, "persistentvolumes", "", admission.Create, change(func(pv *core.PersistentVolume) { pv.Annotations = nil }), nil}, "not of provisioner"},
		"NFS": {request{a, "persistentvolumes", "", admission.Create, change(func(pv *core.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{}}
		}), nil}, "neither local nor hostPath"},
		"no claim": {request{a, "persistentvolumes", "", admission.Create, change(func(pv *core.PersistentVolume) { pv.Spec.ClaimRef = nil }), nil}, "for no claim"},
		"claim of another node": {request{a, "persistentvolumes", "", admission.Create, change(func(pv *core.PersistentVolume) {
			pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "other", "2"
		}), nil}, "does not wait for a local volume of this node"},
		"claim of a class of this node": {request{a, "persistentvolumes", "", admission.Create, change(func(pv *core.PersistentVolume) {
			pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "pinned", "3"
		}), nil}, ""},
		"claim of a class of another": {request{b, "persistentvolumes", "", admission.Create, change(func(pv *core.PersistentVolume) {
			pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID, pv.Labels[localpath.NodeLabel] = "pinned", "3", "b"
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"b"}
		}), nil}, "does not wait for a local volume of this node"},
		"claim that was":    {request{a, "persistentvolumes", "", admission.Create, change(func(pv *core.PersistentVolume) { pv.Spec.ClaimRef.UID = "0" }), nil}, "does not wait"},
		"removes own":       {request{a, "persistentvolumes", "", admission.Delete, nil, nodesVolume()}, ""},
		"removes another's": {request{b, "persistentvolumes", "", admission.Delete, nil, nodesVolume()}, "not one of this node alone"},
		"grows": {request{a, "persistentvolumes", "", admission.Update, change(func(pv *core.PersistentVolume) {
			pv.Spec.Capacity[core.ResourceStorage], pv.Finalizers, pv.ResourceVersion = resource.MustParse("2Gi"), []string{"x"}, "2"
		}), nodesVolume()}, ""},
		"moves": {request{a, "persistentvolumes", "", admission.Update, change(func(pv *core.PersistentVolume) { pv.Spec.Local.Path = "/etc" }), nodesVolume()}, "and nothing else"},
		"takes": {request{b, "persistentvolumes", "", admission.Update, change(func(pv *core.PersistentVolume) {
			pv.Labels[localpath.NodeLabel] = "b"
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"b"}
		}), nodesVolume()}, "not one of this node alone"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, check(t, c.r), c.want) })
	}
}

func TestNodeClaims(t *testing.T) {
	given := nodesClaim()
	delete(given.Annotations, localpath.SelectedNode)
	more := nodesClaim()
	delete(more.Annotations, localpath.SelectedNode)
	more.Spec.VolumeName = "pvc-9"
	bound := func(uid types.UID, volume string, change func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
		c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: uid}}
		c.Spec.VolumeName = volume
		change(c)
		return c
	}
	same := func(*core.PersistentVolumeClaim) {}
	status := func(c *core.PersistentVolumeClaim) { c.ResourceVersion, c.Status.Phase = "2", core.ClaimBound }
	const a, b = "system:coracle:node:a", "system:coracle:node:b"
	for name, c := range map[string]struct {
		r    request
		want string
	}{
		"gives back":           {request{a, "persistentvolumeclaims", "", admission.Update, given, nodesClaim()}, ""},
		"gives back another's": {request{b, "persistentvolumeclaims", "", admission.Update, given, nodesClaim()}, "does not wait"},
		"changes more":         {request{a, "persistentvolumeclaims", "", admission.Update, more, nodesClaim()}, "and change nothing else"},
		"removes":              {request{a, "persistentvolumeclaims", "", admission.Delete, nil, nodesClaim()}, "may not remove claims"},
		"status":               {request{a, "persistentvolumeclaims", "status", admission.Update, nodesClaim(), nodesClaim()}, ""},
		"another's status":     {request{b, "persistentvolumeclaims", "status", admission.Update, nodesClaim(), nodesClaim()}, "does not wait"},
		"status and a finalizer": {request{a, "persistentvolumeclaims", "status", admission.Update, bound("9", "limited", func(c *core.PersistentVolumeClaim) {
			c.Finalizers = []string{"example.com/stays"}
		}), bound("9", "limited", same)}, "and nothing else"},
		"status of a bound claim":              {request{a, "persistentvolumeclaims", "status", admission.Update, bound("9", "limited", status), bound("9", "limited", same)}, ""},
		"status of a claim bound to another's": {request{b, "persistentvolumeclaims", "status", admission.Update, bound("9", "limited", status), bound("9", "limited", same)}, "does not wait"},
		"status of one that names a's volume":  {request{a, "persistentvolumeclaims", "status", admission.Update, bound("8", "limited", status), bound("8", "limited", same)}, "does not wait"},
		"status of one with a foreign volume":  {request{a, "persistentvolumeclaims", "status", admission.Update, bound("9", "another's", status), bound("9", "another's", same)}, "does not wait"},
		"something else":                       {request{a, "configmaps", "", admission.Update, nil, nil}, ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, check(t, c.r), c.want) })
	}
}

func expect(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestGrows(t *testing.T) {
	claim := func(volume, size string) *core.PersistentVolumeClaim {
		c := nodesClaim()
		c.Spec.VolumeName = volume
		c.Spec.Resources.Requests = core.ResourceList{core.ResourceStorage: resource.MustParse(size)}
		return c
	}
	for name, c := range map[string]struct {
		was, is *core.PersistentVolumeClaim
		want    string
	}{
		"limited":               {claim("limited", "1Gi"), claim("limited", "2Gi"), ""},
		"unlimited":             {claim("unlimited", "1Gi"), claim("unlimited", "2Gi"), "is not enforced: ext4 without project quotas, so there is nothing to make larger"},
		"same size":             {claim("unlimited", "1Gi"), claim("unlimited", "1Gi"), ""},
		"not bound":             {claim("", "1Gi"), claim("", "2Gi"), ""},
		"not known":             {claim("other", "1Gi"), claim("other", "2Gi"), ""},
		"another provisioner's": {claim("another's", "1Gi"), claim("another's", "2Gi"), ""},
		"bound by its name":     {withoutProvisioner(claim("unlimited", "1Gi")), withoutProvisioner(claim("unlimited", "2Gi")), "is not enforced"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, check(t, request{"people", "persistentvolumeclaims", "", admission.Update, c.is, c.was}), c.want)
		})
	}
}

func withoutProvisioner(c *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	c.Annotations = nil
	return c
}
