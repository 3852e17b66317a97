package servicelb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/apis/core"
	conversion "k8s.io/kubernetes/pkg/apis/core/v1"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// pluginName is the admission plugin's name, for --disable-admission-plugins.
const pluginName = "CoracleServicePorts"

// plugin refuses Services that would take a port of an address away from coracle, from a process of a node or from another
// Service. kube-proxy on every node handles packets before a process gets them, so a Service could cut agents off the API,
// and kube-proxy would not learn any more that the Service was deleted.
//
// It checks what a write adds, so that Services which exist already can be changed in other respects.
type plugin struct {
	*admission.Handler
	client   kubernetes.Interface
	authz    authorizer.UnconditionalAuthorizer
	reserved []Reserved
	etcd     []claim        // external etcd
	ranges   []netip.Prefix // of pods and Services
	balances bool           // nodes say which ports their processes hold
}

func newAdmission(cfg config.Config) *addon.Admission {
	return &addon.Admission{Name: pluginName, New: func() admission.Interface { return newPlugin(cfg) }}
}

func newPlugin(cfg config.Config) *plugin {
	return &plugin{
		Handler:  admission.NewHandler(admission.Create, admission.Update),
		reserved: reservedPorts(cfg), etcd: datastoreOf(cfg),
		ranges:   slices.Concat(cfg.Network.ClusterCIDRs, cfg.Network.ServiceCIDRs),
		balances: !cfg.Disabled("servicelb"),
	}
}

// SetExternalKubeClientSet sets the client of the API server.
func (p *plugin) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// SetUnconditionalAuthorizer sets the authorizer.
func (p *plugin) SetUnconditionalAuthorizer(a authorizer.UnconditionalAuthorizer) { p.authz = a }

// ValidateInitialization returns an error if the client or the authorizer is missing.
func (p *plugin) ValidateInitialization() error {
	if p.client == nil || p.authz == nil {
		return fmt.Errorf("%s has no client or authorizer", pluginName)
	}
	return nil
}

// Validate refuses a Service if a port of an address that it adds belongs to something else.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != core.Resource("services") || a.GetUserInfo().GetName() == pki.ControllerUser {
		return nil // Balancers gives out addresses by these rules
	}
	is, err := asService(a.GetObject())
	if err != nil {
		return err
	}
	was, err := asService(a.GetOldObject())
	if err != nil {
		return err
	}
	if n, before := countClaims(is), countClaims(was); n > mostClaims && n > before {
		return admission.NewForbidden(a, fmt.Errorf("it has %d ports of addresses, which are all its ports at each of its addresses: %d are allowed", n, mostClaims))
	}
	added := without(claimsOf(is), claimsOf(was))
	if err := p.nodePort(is, was); err != nil {
		return admission.NewForbidden(a, err)
	}
	if len(added) == 0 {
		return nil
	}
	o, err := p.owners(ctx, a.GetSubresource() == "")
	if err == nil && a.GetSubresource() == "" {
		o.gateways, err = gatewayAddresses(ctx, p.client)
	}
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	for _, c := range added {
		if err := errors.Join(p.refuse(o, c, is), p.refuseLater(ctx, a.GetUserInfo(), c, is)); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	if a.GetSubresource() != "" {
		return nil
	}
	lost, err := o.processes(added, is)
	if err != nil {
		return admission.NewForbidden(a, err)
	}
	if len(lost) == 0 || a.IsDryRun() {
		return nil
	}
	return p.withdraw(ctx, is, lost, added)
}

// nodePort refuses a NodePort that coracle uses itself.
func (p *plugin) nodePort(is, was *corev1.Service) error {
	before := nodePortsOf(was)
	for _, n := range nodePortsOf(is) {
		for _, r := range p.reserved {
			if r.is(n) && !slices.Contains(before, n) {
				return fmt.Errorf("NodePort %s is a port of %s: use another one", n, r.Holder)
			}
		}
	}
	return nil
}

// refuse returns an error if a claim belongs to coracle or to another Service.
func (p *plugin) refuse(o owners, c claim, s *corev1.Service) error {
	if slices.Contains(p.etcd, c) {
		return fmt.Errorf("port %s of %s is the cluster's etcd: use another port or address", c.port, c.addr)
	}
	for _, r := range p.ranges {
		if r.Contains(c.addr) {
			return fmt.Errorf("%s is in the range %s of pods or Services: use an address of a node, or one outside the cluster", c.addr, r)
		}
	}
	for _, n := range o.nodes[c.addr] {
		for _, r := range p.reserved {
			if _, server := n.Labels[controlPlane]; r.is(c.port) && (server || !r.ServersOnly) {
				return fmt.Errorf("port %s of %s is held by %s on node %s: use another port or address", c.port, c.addr, r.Holder, n.Name)
			}
		}
	}
	if gateway := o.gateways[c.addr]; gateway != "" {
		return fmt.Errorf("%s belongs to Gateway %s: use another address", c.addr, gateway)
	}
	if other := o.service(c, s); other != "" {
		return fmt.Errorf("port %s of %s is held by %s: use another port or address", c.port, c.addr, other)
	}
	return nil
}

// refuseLater returns an error if a machine that joins with a Service's external address could not work: nobody looks at a Node's new
// addresses. Users who may change Nodes know which ones come.
func (p *plugin) refuseLater(ctx context.Context, who user.Info, c claim, s *corev1.Service) error {
	i := slices.IndexFunc(p.reserved, func(r Reserved) bool { return r.is(c.port) })
	if i < 0 || !hasExternal(s, c.addr) {
		return nil
	}
	decision, _, err := p.authz.Authorize(ctx, authorizer.AttributesRecord{User: who, Verb: "update", APIVersion: "v1", Resource: "nodes", ResourceRequest: true})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	return errors.Join(fmt.Errorf("port %s of %s would be held by %s if a node gets the address: use another port, or ask an administrator who may update nodes",
		c.port, c.addr, p.reserved[i].Holder), err)
}

// hasExternal reports whether an address is one of the externalIPs of a Service.
func hasExternal(s *corev1.Service, addr netip.Addr) bool {
	return slices.ContainsFunc(s.Spec.ExternalIPs, func(ip string) bool { a, _ := parseAddr(ip); return a == addr })
}

// withdraw removes addresses from the status of a Service, on whose nodes a process holds a port that is to be added to the
// Service, and makes Balancers wait for the change. The write that is being admitted conflicts with this one: the API server
// tries it again, or its client does.
func (p *plugin) withdraw(ctx context.Context, s *corev1.Service, lost []netip.Addr, added []claim) error {
	services := p.client.CoreV1().Services(s.Namespace)
	now, err := services.Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now.Status.LoadBalancer.Ingress = slices.DeleteFunc(now.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		addr, ok := parseAddr(i.IP)
		return ok && slices.Contains(lost, addr)
	})
	var ports []port
	for _, c := range added {
		ports = append(ports, c.port)
	}
	meta.RemoveStatusCondition(&now.Status.Conditions, readyCondition) // so that the time is that of now
	meta.SetStatusCondition(&now.Status.Conditions, metav1.Condition{
		Type: readyCondition, Status: metav1.ConditionFalse, Reason: changing, Message: toCome + formatPorts(ports),
	})
	_, err = services.UpdateStatus(ctx, now, metav1.UpdateOptions{FieldManager: "coracle"})
	return err
}

// asService returns the versioned form of an object; an empty Service of nil.
func asService(obj runtime.Object) (*corev1.Service, error) {
	out := &corev1.Service{}
	if obj == nil {
		return out, nil
	}
	in, ok := obj.(*core.Service)
	if !ok {
		return nil, errors.New("the object is not a Service")
	}
	return out, conversion.Convert_core_Service_To_v1_Service(in, out, nil)
}
