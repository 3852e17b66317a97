package nodevolumes

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/addons/localstorage/localpath"
)

// grows refuses a request for a larger local volume if its size is not enforced. Otherwise the claim would wait for ever,
// because the API does not allow a size request to be withdrawn.
func (p *Plugin) grows(ctx context.Context, a admission.Attributes) error {
	if a.GetResource().Resource != "persistentvolumeclaims" || a.GetSubresource() != "" || a.GetOperation() != admission.Update {
		return nil
	}
	was, _ := a.GetOldObject().(*core.PersistentVolumeClaim)
	is, ok := a.GetObject().(*core.PersistentVolumeClaim)
	if !ok || was == nil || was.Spec.VolumeName == "" {
		return nil
	}
	before, now := was.Spec.Resources.Requests[core.ResourceStorage], is.Spec.Resources.Requests[core.ResourceStorage]
	if now.Cmp(before) <= 0 {
		return nil
	}
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, was.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || pv.Annotations[localpath.ProvisionedBy] != localpath.Provisioner {
		return nil // of an error the node that expands the volume tells
	}
	quota, known := pv.Annotations[localpath.QuotaAnnotation]
	if !known || strings.HasPrefix(quota, "enforced") {
		return nil
	}
	return admission.NewForbidden(a, fmt.Errorf("the size of local volume %s is %s, so there is nothing to make larger: its pods can use all "+
		"the room that there is on node %s", pv.Name, quota, pv.Labels[localpath.NodeLabel]))
}
