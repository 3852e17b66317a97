package controllermanager

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	genericapp "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/nodeipam/ipam"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// takeNodeIPAM removes upstream's controller of pod subnets from the others, and reports whether it was among them. Upstream's start ends
// the process if a Node has a subnet that the controller did not assign (NewCIDRRangeAllocator, "This error will keep crashing
// controller-manager"), so one bad Node would stop every server.
func takeNodeIPAM(opts *options.KubeControllerManagerOptions) bool {
	list := opts.Generic.Controllers
	if !genericapp.IsControllerEnabled(names.NodeIpamController, sets.NewString(app.ControllersDisabledByDefault()...), list) {
		return false
	}
	opts.Generic.Controllers = append([]string{"-" + names.NodeIpamController}, list...)
	return opts.KubeCloudShared.AllocateNodeCIDRs
}

// runNodeIPAM runs upstream's controller of pod subnets until ctx is done, for the Nodes whose subnets are parts of the cluster's and
// overlap no older Node's. The others keep what they have, and nobody routes to them.
func runNodeIPAM(ctx context.Context, cfg *config.CompletedConfig) error {
	builder := clientbuilder.NewDynamicClientBuilder(restclient.AnonymousClientConfig(cfg.Kubeconfig), cfg.Client.CoreV1(), "kube-system")
	client, err := builder.Client("node-controller")
	if err != nil {
		return fmt.Errorf("making the client of %s: %w", names.NodeIpamController, err)
	}
	params, cluster, err := ipamParams(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(cfg.Client, 0, informers.WithTransform(kube.Trim(func(full, small *corev1.Node) {
		small.Spec.PodCIDR, small.Spec.PodCIDRs = full.Spec.PodCIDR, full.Spec.PodCIDRs
	})))
	nodes := soundNodes{factory.Core().V1().Nodes(), cluster}
	if _, err := nodes.NodeInformer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: nodes.warn}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.NodeInformer.Informer().HasSynced) {
		return nil
	}
	all, err := nodes.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	var taken corev1.NodeList
	for _, node := range all {
		if nodes.sound(node) {
			taken.Items = append(taken.Items, *node)
		}
	}
	allocator, err := ipam.NewCIDRRangeAllocator(ctx, client, nodes, params, &taken)
	if err != nil {
		return fmt.Errorf("making %s: %w", names.NodeIpamController, err)
	}
	allocator.Run(ctx)
	return nil
}

// ipamParams are the networks that the flags name, as upstream reads them.
func ipamParams(cfg *config.CompletedConfig) (params ipam.CIDRAllocatorParams, cluster []netip.Prefix, err error) {
	for text := range strings.SplitSeq(cfg.ComponentConfig.KubeCloudShared.ClusterCIDR, ",") {
		cidr, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return params, nil, fmt.Errorf("reading --cluster-cidr: %w", err)
		}
		cluster = append(cluster, cidr.Masked())
	}
	own := cfg.ComponentConfig.NodeIPAMController
	for _, cidr := range cluster {
		share := cmp.Or(own.NodeCIDRMaskSize, own.NodeCIDRMaskSizeIPv4, 24)
		if cidr.Addr().Is6() {
			share = cmp.Or(own.NodeCIDRMaskSize, own.NodeCIDRMaskSizeIPv6, 64)
		}
		if int(share) < cidr.Bits() {
			return params, nil, fmt.Errorf("a node's pod subnet (/%d) cannot be larger than the cluster's, %s", share, cidr)
		}
		params.ClusterCIDRs = append(params.ClusterCIDRs, ipNet(cidr))
		params.NodeCIDRMaskSizes = append(params.NodeCIDRMaskSizes, int(share))
	}
	for text, to := range map[string]**net.IPNet{own.ServiceCIDR: &params.ServiceCIDR, own.SecondaryServiceCIDR: &params.SecondaryServiceCIDR} {
		if cidr, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			*to = ipNet(cidr.Masked())
		}
	}
	return params, cluster, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// soundNodes is an informer whose handlers get the Nodes with sound subnets, or none yet, only.
type soundNodes struct {
	coreinformers.NodeInformer
	cluster []netip.Prefix
}

// Informer implements coreinformers.NodeInformer.
func (s soundNodes) Informer() cache.SharedIndexInformer {
	return filtered{s.NodeInformer.Informer(), func(obj any) bool {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		node, ok := obj.(*corev1.Node)
		return ok && s.sound(node)
	}}
}

func (s soundNodes) sound(node *corev1.Node) bool {
	if len(node.Spec.PodCIDRs) == 0 {
		return true
	}
	all, err := s.Lister().List(labels.Everything())
	return err == nil && len(kube.SubnetsOf(node, all, s.cluster)) > 0
}

// warn logs about a Node without sound subnets.
func (s soundNodes) warn(obj any) {
	if node, ok := obj.(*corev1.Node); ok && !s.sound(node) {
		logrus.WithField("component", "kube-controller-manager").WithField("node", node.Name).Warnf("the node's pod subnet %s is another node's or "+
			"not one of the cluster's: nobody routes to its pods; remove the node with coracle node remove %s, and let it join again",
			strings.Join(node.Spec.PodCIDRs, ","), node.Name)
	}
}

type filtered struct {
	cache.SharedIndexInformer
	pass func(any) bool
}

// AddEventHandler implements cache.SharedInformer.
func (f filtered) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return f.SharedIndexInformer.AddEventHandler(cache.FilteringResourceEventHandler{FilterFunc: f.pass, Handler: handler})
}
