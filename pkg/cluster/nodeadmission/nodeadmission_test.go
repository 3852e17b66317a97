package nodeadmission

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const kubelet, admin = "system:node:a", "system:admin"

// node returns Node a after a change.
func node(change func(*core.Node)) *core.Node {
	n := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kubernetes.io/hostname": "a"}}}
	if change != nil {
		change(n)
	}
	return n
}

func attributes(who, sub string, is, was runtime.Object) admission.Attributes {
	op := admission.Create
	if was != nil {
		op = admission.Update
	}
	return admission.NewAttributesRecord(is, was, schema.GroupVersionKind{}, "", "a", schema.GroupVersionResource{Version: "v1", Resource: "nodes"},
		sub, op, nil, false, &user.DefaultInfo{Name: who})
}

func TestRefused(t *testing.T) {
	subnet := func(n *core.Node) { n.Spec.PodCIDRs = []string{"10.42.1.128/25"} }
	cordoned := func(n *core.Node) { n.Spec.Unschedulable = true }
	kept := func(n *core.Node) { n.Finalizers = []string{"example.com/forever"} }
	for name, c := range map[string]struct {
		who, sub string
		is, was  func(*core.Node)
		create   bool
		want     string
	}{
		"registers":                         {who: kubelet, create: true},
		"registers with a subnet":           {who: kubelet, create: true, is: subnet, want: "the control plane assigns spec.podCIDR"},
		"registers with a subnet, as agent": {who: "system:coracle:node:a", create: true, is: subnet, want: "the control plane assigns spec.podCIDR"},
		"an administrator's simulated node": {who: admin, create: true, is: subnet},
		"takes a subnet":                    {who: kubelet, is: subnet, want: "cannot change its own spec"},
		"the controller gives one":          {who: "system:serviceaccount:kube-system:node-controller", is: subnet},
		"has one":                           {who: kubelet, is: subnet, was: subnet},
		"uncordons itself":                  {who: kubelet, was: cordoned, want: "cannot change its own spec"},
		"status":                            {who: kubelet, sub: "status"},
		"selects itself for load balancers": {who: kubelet, sub: "status", want: "cannot change its label svccontroller.k3s.cattle.io/enablelb",
			is: func(n *core.Node) { n.Labels["svccontroller.k3s.cattle.io/enablelb"] = "true" }},
		"is not excluded any more": {who: kubelet, want: "cannot change its label node.kubernetes.io/exclude-from-external-load-balancers",
			was: func(n *core.Node) { n.Labels["node.kubernetes.io/exclude-from-external-load-balancers"] = "" }},
		"names itself as another node": {who: kubelet, sub: "status", want: "cannot change its label kubernetes.io/hostname",
			is: func(n *core.Node) { n.Labels["kubernetes.io/hostname"] = "b" }},
		"has no name":          {who: kubelet, want: "cannot change its label kubernetes.io/hostname", is: func(n *core.Node) { n.Labels = nil }},
		"is named as it is":    {who: kubelet, was: func(n *core.Node) { n.Labels = nil }},
		"a CSI driver's label": {who: kubelet, is: func(n *core.Node) { n.Labels["topology.example.com/rack"] = "1" }},
		"permits itself addresses": {who: kubelet, want: "coracle.io/allowed-addresses of a node is the control plane's",
			is: func(n *core.Node) { n.Annotations = map[string]string{kube.AllowedAddresses: "192.0.2.1"} }},
		"a finalizer":                  {who: kubelet, sub: "status", is: kept, want: "cannot set finalizers"},
		"registers with a finalizer":   {who: kubelet, create: true, is: kept, want: "cannot set finalizers"},
		"an administrator's finalizer": {who: kubelet, sub: "status", is: kept, was: kept},
	} {
		t.Run(name, func(t *testing.T) {
			var was runtime.Object
			if !c.create {
				was = node(c.was)
			}
			err := New(config.Config{}).Validate(context.Background(), attributes(c.who, c.sub, node(c.is), was), nil)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
