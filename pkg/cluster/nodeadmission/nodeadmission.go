// Package nodeadmission is an admission plugin of the API server for what nodes write about themselves and their pods: upstream's
// NodeRestriction limits a node to its own Node object and pods, and this plugin to what others do not rely on, or what the control plane can verify.
//
// What only an administrator or the control plane may write is refused. Addresses and labels that a node may not have are left out, with a
// warning that its kubelet logs, so that it works otherwise.
package nodeadmission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/apis/coordination"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/ptr"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Name is the plugin's name, for --disable-admission-plugins.
const Name = "CoracleNodes"

// kubeletUser is the prefix of a kubelet's user name. The node's name follows.
const kubeletUser = "system:node:"

// Plugin restricts what nodes write. Without it, root on one node could take the place of others.
type Plugin struct {
	*admission.Handler
	own, key string       // the node of this server, which is trusted, and the fingerprint of its key
	reserved []netip.Addr // addresses of this server
	networks []netip.Prefix
	dirs     paths.Dirs

	podNetworks []netip.Prefix // nil: addresses of pods are not known

	client     kubernetes.Interface
	nodes      corelisters.NodeLister
	namespaces corelisters.NamespaceLister
	services   corelisters.ServiceLister
	authorizer authorizer.UnconditionalAuthorizer

	mu   sync.Mutex
	told map[string]notice // by node, for its pods with "/pods"
}

// New returns the plugin for a server.
func New(cfg config.Config) *Plugin {
	p := &Plugin{
		Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		own:     cfg.Node.Name, told: map[string]notice{}, podNetworks: networksOf(cfg), dirs: cfg.Dirs,
	}
	p.key, _ = pki.Identity(cfg.Dirs) // without its key no server starts
	p.reserved = append(p.reserved, cfg.API.Advertise, cfg.API.Bind)
	p.reserved = append(append(p.reserved, cfg.Node.IPs...), cfg.Node.ExternalIPs...)
	for _, san := range cfg.API.SANs {
		if addr, err := netip.ParseAddr(san); err == nil {
			p.reserved = append(p.reserved, addr.Unmap())
		}
	}
	p.networks = append(append(p.networks, cfg.Network.ClusterCIDRs...), cfg.Network.ServiceCIDRs...)
	return p
}

// SetExternalKubeClientSet sets the client of the API server.
func (p *Plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetExternalKubeInformerFactory sets the caches of the API server.
func (p *Plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	nodes, services := f.Core().V1().Nodes(), f.Core().V1().Services()
	p.nodes, p.services, p.namespaces = nodes.Lister(), services.Lister(), f.Core().V1().Namespaces().Lister()
	synced := []func() bool{nodes.Informer().HasSynced, services.Informer().HasSynced, f.Core().V1().Namespaces().Informer().HasSynced}
	p.SetReadyFunc(func() bool { return !slices.ContainsFunc(synced, func(has func() bool) bool { return !has() }) })
}

// SetUnconditionalAuthorizer sets the authorizer.
func (p *Plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authorizer = a }

// ValidateInitialization returns an error if something was not set.
func (p *Plugin) ValidateInitialization() error {
	if p.client == nil || p.nodes == nil || p.authorizer == nil {
		return fmt.Errorf("%s has no client, caches or authorizer", Name)
	}
	return nil
}

// Admit leaves out what a node may not say of itself, refuses huge requests for certificates, and completes kubelets' certificates.
func (p *Plugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if node, is, was, ok := podOf(a); ok {
		return p.admitPod(ctx, a, node, is, was)
	}
	if err := checkRequest(a); err != nil {
		return err
	}
	p.chain(a)
	w, ok := p.write(ctx, a)
	if !ok || kube.IsServer(w.stored()) || p.isOwn(ctx, w.name) {
		return nil
	}
	if w.old == nil {
		if err := w.readClaim(); err != nil {
			return admission.NewForbidden(a, err)
		}
		w.labels()
	}
	if err := w.addresses(); err != nil {
		return admission.NewForbidden(a, err)
	}
	p.tell(ctx, w.name, w)
	return nil
}

// isOwn reports whether a node name is this server's, and not that of a machine that has claimed it. Until the server has, nobody can.
func (p *Plugin) isOwn(ctx context.Context, name string) bool {
	if name != p.own {
		return false
	}
	claim, err := p.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, endpoint.ClaimPrefix+name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && p.key != "" && ptr.Deref(claim.Spec.HolderIdentity, "") == p.key
}

// Validate refuses what a node must not write, and changes of claims.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() == coordination.Resource("leases") {
		return p.claim(ctx, a)
	}
	if node, is, was, ok := podOf(a); ok {
		if err := checkPod(node, is, was); err != nil {
			return admission.NewForbidden(a, err)
		}
		return nil
	}
	w, ok := p.write(ctx, a)
	if !ok {
		return nil
	}
	var err error
	switch {
	case w.old == nil && len(w.now.Spec.PodCIDRs) > 0:
		err = errors.New("the control plane assigns spec.podCIDR; a node cannot choose it")
	case w.old != nil && a.GetSubresource() == "":
		err = w.checkSpec()
	}
	if err := errors.Join(err, w.checkMeta()); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// write returns what a node writes into a Node; ok is false for other requests.
func (p *Plugin) write(ctx context.Context, a admission.Attributes) (w write, ok bool) {
	name := nodeOf(a.GetUserInfo().GetName())
	if name == "" || a.GetResource().GroupResource() != core.Resource("nodes") {
		return w, false
	}
	now, ok := a.GetObject().(*core.Node) // not of a connection to the kubelet
	old, _ := a.GetOldObject().(*core.Node)
	return write{Plugin: p, ctx: ctx, name: name, old: old, now: now, source: kube.PeerOf(ctx)}, ok
}

// nodeOf returns the node name of a kubelet, or of coracle's part on a node; "" for other users.
func nodeOf(user string) string {
	for _, prefix := range []string{kubeletUser, pki.NodeUser} {
		if name, ok := strings.CutPrefix(user, prefix); ok {
			return name
		}
	}
	return ""
}

// claim refuses changes of the claims on node names to users who could not remove Nodes either.
func (p *Plugin) claim(ctx context.Context, a admission.Attributes) error {
	if a.GetNamespace() != "kube-system" {
		return nil
	}
	name := a.GetName()
	for _, obj := range []any{a.GetObject(), a.GetOldObject()} { // the name is generated, or of a collection
		if lease, ok := obj.(*coordination.Lease); ok && lease != nil && name == "" {
			name = lease.Name
		}
	}
	if endpoint.ClaimedBy(name) == "" {
		return nil
	}
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "delete", APIVersion: "v1", Resource: "nodes", ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return admission.NewForbidden(a, errors.Join(fmt.Errorf("the Lease says which machine is node %s: only those who may delete Nodes may change it",
		endpoint.ClaimedBy(name)), err))
}
