package apiserver

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/tunnel"
)

// Egress are the connections of the server to nodes, pods and webhooks: direct ones, or through tunnels of nodes.
type Egress struct {
	Tunnels *tunnel.Hub // may be nil
	Node    string      // the name of the server's own node, which has no tunnel
	// AnyPodAddress is set if pod addresses do not belong to the pod CIDR of their node, as with a CNI plugin of the user.
	AnyPodAddress bool
	ClusterCIDRs  []netip.Prefix
}

// newConfig makes the configurations of the servers with upstream's functions, in upstream's order. It differs from upstream's NewConfig
// in what no flag can set: the authorizer, the limits of guesses and of newcomers, the guard, and the dialer of the egress selector, which is a function of this
// process. A selector that the user configured is not changed.
func (e Egress) newConfig(opts options.CompletedOptions, groups []Group, guard Guard) (*app.Config, error) {
	schemes := []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme}
	for _, g := range groups {
		schemes = append(schemes, g.Scheme())
	}
	generic, shared, storage, err := controlplaneserver.BuildGenericConfig(
		opts.CompletedOptions,
		schemes,
		controlplane.DefaultAPIResourceConfigSource(),
		generatedopenapi.GetOpenAPIDefinitions,
		opts.InformerName,
	)
	if err != nil {
		return nil, err
	}
	if generic.AuditBackend != nil {
		generic.AuditBackend = shortEvents{generic.AuditBackend}
	}
	generic.Authorization.Authorizer = newSyncedAuthorizer(generic.Authorization.Authorizer, shared)
	limit := newGuesses()
	generic.Authentication.Authenticator = guarded{generic.Authentication.Authenticator, limit, false}
	e.install(generic, shared)
	built, resolver, admission, err := app.CreateKubeAPIServerConfig(opts, generic, shared, storage)
	if err != nil {
		return nil, err
	}
	base := &built.ControlPlane
	webhooks := webhook.NewDefaultAuthenticationInfoResolverWrapper(base.ProxyTransport, base.Generic.EgressSelector,
		base.Generic.LoopbackClientConfig, base.Generic.TracerProvider)
	extensions, err := controlplaneserver.CreateAPIExtensionsConfig(*base.Generic, base.VersionedInformers, admission,
		opts.CompletedOptions, opts.MasterCount, resolver, webhooks)
	if err != nil {
		return nil, err
	}
	aggregator, err := controlplaneserver.CreateAggregatorConfig(*base.Generic, opts.CompletedOptions, base.VersionedInformers,
		resolver, base.ProxyTransport, base.Extra.PeerProxy, admission)
	if err != nil {
		return nil, err
	}
	// On the outermost server only, whose handlers upstream replaces if some feature gates are on.
	limit.add(&aggregator.GenericConfig.Config)
	limitNewcomers(&aggregator.GenericConfig.Config)
	addGuard(guard, &aggregator.GenericConfig.Config)
	return &app.Config{Options: opts, Aggregator: aggregator, KubeAPIs: built, ApiExtensions: extensions}, nil
}

// install sets the dialer.
func (e Egress) install(generic *genericserver.Config, shared informers.SharedInformerFactory) {
	if e.Tunnels == nil || generic.EgressSelector != nil {
		return
	}
	owners := owners{nodes: shared.Core().V1().Nodes().Lister(), cluster: e.ClusterCIDRs}
	if e.AnyPodAddress {
		owners.pods = shared.Core().V1().Pods().Lister()
	}
	dialer := &tunnel.Dialer{Hub: e.Tunnels, Self: e.Node, Owner: owners.of}
	generic.EgressSelector = egressselector.NewEgressSelectorWithMap(map[egressselector.EgressType]utilnet.DialFunc{
		egressselector.Cluster: dialer.DialContext, // the other two are not set, so they are dialled directly
	})
}

// owners finds the node of an address. Both listers exist in the server anyway.
type owners struct {
	nodes   corelisters.NodeLister
	pods    corelisters.PodLister // used instead of the nodes' pod CIDRs; nil if the CIDRs are right
	cluster []netip.Prefix        // in which the pod CIDRs are
}

func (o owners) of(host string) (owner tunnel.Owner, ok bool) {
	nodes, err := o.nodes.List(labels.Everything())
	if err != nil {
		return owner, false
	}
	ip, _ := netip.ParseAddr(host) // a name has the zero value, which is in no CIDR
	// CIDRs go first: the control plane assigns them, while nodes report their addresses themselves. Then the node that was seen at the address; else of
	// several Nodes the oldest counts.
	for _, matches := range []func(*corev1.Node) bool{
		func(n *corev1.Node) bool { return o.pods == nil && contains(n, o.cluster, ip) },
		func(n *corev1.Node) bool { return kube.HasForSure(n, ip.Unmap()) },
		func(n *corev1.Node) bool { return has(n, host) },
	} {
		var oldest *corev1.Node
		for _, n := range nodes {
			if matches(n) && (oldest == nil || kube.Older(n, oldest)) {
				oldest = n
			}
		}
		if oldest != nil {
			return ownerOf(oldest), true
		}
	}
	if o.pods == nil || !ip.IsValid() {
		return owner, false
	}
	pods, err := o.pods.List(labels.Everything())
	if err != nil {
		return owner, false
	}
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Status.PodIPs, func(p corev1.PodIP) bool { return p.IP == host }) {
			if node, err := o.nodes.Get(pod.Spec.NodeName); err == nil {
				return ownerOf(node), true
			}
		}
	}
	return owner, false
}

func ownerOf(node *corev1.Node) tunnel.Owner {
	owner := tunnel.Owner{Node: node.Name}
	for _, a := range node.Status.Addresses {
		owner.Addresses = append(owner.Addresses, a.Address)
	}
	return owner
}

func has(node *corev1.Node, host string) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == host })
}

// contains reports whether an address is one of a Node's pods.
func contains(node *corev1.Node, cluster []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(kube.PodCIDRs(node), func(cidr netip.Prefix) bool { return cidr.Contains(ip.Unmap()) }) && kube.InCluster(node, cluster)
}
