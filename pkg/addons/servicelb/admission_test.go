package servicelb

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/apis/core"
	conversion "k8s.io/kubernetes/pkg/apis/core/v1"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// offer returns a Service with ports and external addresses.
func offer(name string, ports []int32, ips ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.43.0.77", ClusterIPs: []string{"10.43.0.77"}, ExternalIPs: ips,
	}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: p, Protocol: corev1.ProtocolTCP})
	}
	return s
}

// balancing returns a load balancer that has addresses.
func balancing(name string, ports []int32, ips ...string) *corev1.Service {
	s := offer(name, ports)
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	for _, ip := range ips {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return s
}

// holding makes a node say which ports are in use on it.
func holding(held map[string]string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		text, _ := json.Marshal(answer{Held: held})
		n.Annotations[heldAnnotation] = string(text)
	}
}

func asInternal(t *testing.T, s *corev1.Service) runtime.Object {
	if s == nil {
		return nil
	}
	out := &core.Service{}
	if err := conversion.Convert_v1_Service_To_core_Service(s, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

// administrator may update Nodes.
type administrator string

func (who administrator) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == string(who) && a.GetVerb() == "update" && a.GetResource() == "nodes" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestAdmission(t *testing.T) {
	everything := map[string]string{}
	for p := range int32(20000) {
		everything[port{p, corev1.ProtocolTCP}.String()] = "everything (pid 1)"
	}
	server := member("server", "192.0.2.1", func(n *corev1.Node) {
		n.Labels[controlPlane] = "true"
		n.Annotations[kube.APINamesAnnotation] = "api.example.org,203.0.113.1"
	})
	agent := member("agent", "192.0.2.2", holding(map[string]string{"2222/TCP": "sshd (pid 7)"}))
	// rogue says that it holds all ports, and that it has the server's address.
	rogue := member("rogue", "192.0.2.3", holding(everything), func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
			corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.1"})
	})
	twin := offer("tenant", []int32{8181}, "192.0.2.2")
	twin.Namespace = "other"
	holder := balancing("holder", []int32{443}, "192.0.2.1", "192.0.2.2")
	legacy := offer("legacy", []int32{10250}, "192.0.2.1") // from before the upgrade
	ported := offer("ported", []int32{1})
	ported.Spec.Type, ported.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30443
	onPort := func(n int32) *corev1.Service {
		s := ported.DeepCopy()
		s.Name, s.Spec.Ports[0].NodePort = "tenant", n
		return s
	}
	udp := offer("tenant", []int32{8472}, "192.0.2.2")
	udp.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	proxied := balancing("tenant", []int32{6443}, "192.0.2.1")
	mode := corev1.LoadBalancerIPModeProxy
	proxied.Status.LoadBalancer.Ingress[0].IPMode = &mode
	vip := proxied.DeepCopy()
	vip.Status.LoadBalancer.Ingress[0].IPMode = nil
	labeled := legacy.DeepCopy()
	labeled.Labels = map[string]string{"a": "b"}
	external := offer("tenant", []int32{6443}, "192.0.2.1")
	external.Spec.Type = corev1.ServiceTypeExternalName
	const lb = "192.0.2.1 192.0.2.2 192.0.2.3"
	ips := strings.Fields(lb)
	for name, c := range map[string]struct {
		is, was *corev1.Service
		sub     string
		want    string // of the error; "" if it is admitted
		lost    string // addresses that the Service loses
	}{
		"API":                      {is: offer("tenant", []int32{6443}, "192.0.2.1"), want: "held by coracle (API server) on node server"},
		"API, leading zeros":       {is: offer("tenant", []int32{6443}, "192.000.002.001"), want: "held by coracle (API server)"},
		"API, mapped":              {is: offer("tenant", []int32{6443}, "::ffff:192.0.2.1"), want: "held by coracle (API server)"},
		"API, further address":     {is: offer("tenant", []int32{6443}, "203.0.113.1"), want: "held by coracle (API server)"},
		"API's port on an agent":   {is: offer("tenant", []int32{6443}, "192.0.2.2"), want: "would be held by coracle (API server)"},
		"API's port elsewhere":     {is: offer("tenant", []int32{6443}, "198.51.100.1"), want: "would be held by coracle (API server)"},
		"kubelet's port elsewhere": {is: offer("tenant", []int32{10250}, "198.051.100.001"), want: "would be held by coracle (kubelet)"},
		"administrator, elsewhere": {is: offer("admin", []int32{6443}, "198.51.100.1")},
		"other port elsewhere":     {is: offer("tenant", []int32{8443}, "198.51.100.1")},
		"another's API, status":    {is: balancing("tenant", []int32{6443}, "198.51.100.1"), was: balancing("tenant", []int32{6443}), sub: "status"},
		"kubelet":                  {is: offer("tenant", []int32{80, 10250}, "192.0.2.2"), want: "held by coracle (kubelet) on node agent"},
		"etcd":                     {is: offer("tenant", []int32{2380}, "192.0.2.1"), want: "held by coracle (etcd)"},
		"external etcd":            {is: offer("tenant", []int32{2379}, "198.51.100.9"), want: "is the cluster's etcd"},
		"vxlan":                    {is: udp, want: "held by coracle (vxlan)"},
		"Service":                  {is: offer("tenant", []int32{443}, "10.43.0.1"), want: "is in the range 10.43.0.0/16"},
		"pod":                      {is: offer("tenant", []int32{10053}, "10.42.0.1"), want: "is in the range 10.42.0.0/16"},
		"process":                  {is: offer("tenant", []int32{2222}, "192.0.2.2"), want: "held by sshd (pid 7) on node agent"},
		"another node's process":   {is: offer("tenant", []int32{2222}, "192.0.2.1")},
		"free":                     {is: offer("tenant", []int32{80}, "192.0.2.1", "192.0.2.2")},
		"rogue's own":              {is: offer("tenant", []int32{80}, "192.0.2.3"), want: "held by everything"},
		"shared with a server":     {is: offer("tenant", []int32{80}, "203.0.113.1")},
		"its name elsewhere":       {is: offer("tenant", []int32{8181}, "192.0.2.2"), want: "held by Service other/tenant"},
		"load balancer":            {is: offer("tenant", []int32{443}, "192.0.2.2"), want: "held by Service shop/holder"},
		"NodePort":                 {is: offer("tenant", []int32{30443}, "192.0.2.2"), want: "held by the NodePort of Service shop/ported"},
		"added address":            {is: offer("tenant", []int32{6443}, "192.0.2.2", "192.0.2.1"), was: offer("tenant", []int32{6443}, "192.0.2.2"), want: "held by coracle (API server) on node server"},
		"added port":               {is: offer("tenant", []int32{80, 10250}, "192.0.2.2"), was: offer("tenant", []int32{80}, "192.0.2.2"), want: "held by coracle"},
		"another type":             {is: offer("tenant", []int32{6443}, "192.0.2.1"), was: external, want: "held by coracle"},
		"from before, other field": {is: labeled, was: legacy},
		"from before, to a free":   {is: offer("legacy", []int32{80}, "192.0.2.1"), was: legacy},
		"coracle's NodePort":       {is: onPort(10250), want: "NodePort 10250/TCP is a port of coracle (kubelet)"},
		"same NodePort":            {is: onPort(10250), was: onPort(10250)},
		"status":                   {is: vip, was: balancing("tenant", []int32{6443}), sub: "status", want: "held by coracle (API server)"},
		"status of a proxy":        {is: proxied, was: balancing("tenant", []int32{6443}), sub: "status"},
		"status, process":          {is: balancing("tenant", []int32{2222}, ips...), was: balancing("tenant", []int32{2222}), sub: "status"},
		"too many claims":          {is: offer("tenant", make([]int32, 5000), slices.Repeat([]string{"192.0.2.77"}, 20000)...), want: "it has 100000000 ports of addresses"},
		"as many claims as before": {is: offer("tenant", make([]int32, 50), slices.Repeat([]string{"192.0.2.77"}, 30)...), was: offer("tenant", make([]int32, 50), slices.Repeat([]string{"192.0.2.77"}, 30)...)},
		"balancer, new":            {is: balancing("tenant", []int32{6443})},
		"balancer, API added":      {is: balancing("tenant", []int32{80, 6443}, ips...), was: balancing("tenant", []int32{80}, ips...), want: "held by coracle (API server)"},
		"balancer, another's":      {is: balancing("tenant", []int32{80, 443}, ips...), was: balancing("tenant", []int32{80}, ips...), want: "held by Service shop/holder"},
		"balancer, free added":     {is: balancing("tenant", []int32{80, 81}, ips...), was: balancing("tenant", []int32{80}, ips...), lost: "192.0.2.3"},
		"balancer, process added":  {is: balancing("tenant", []int32{80, 2222}, ips...), was: balancing("tenant", []int32{80}, ips...), lost: "192.0.2.2 192.0.2.3"},
		"balancer, port changed":   {is: balancing("tenant", []int32{2222}, ips...), was: balancing("tenant", []int32{80}, ips...), lost: "192.0.2.2 192.0.2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{server, agent, rogue, holder, legacy, ported, twin}
			if c.was != nil && c.was.Name == "tenant" {
				objects = append(objects, c.was)
			}
			cfg := config.Config{Network: config.Network{
				ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
				Backend: config.VXLAN,
			}, API: config.API{Port: 6443}, Datastore: config.Datastore{Endpoints: []string{"https://198.51.100.9:2379", "unix:///run/etcd.sock"}}}
			p, _ := newAdmission(cfg).New().(*plugin)
			client := fake.NewClientset(objects...)
			p.SetExternalKubeClientSet(client)
			p.SetUnconditionalAuthorizer(administrator("admin"))
			op := admission.Update
			if c.was == nil {
				op = admission.Create
			}
			validate := func(dry bool) error {
				return p.Validate(context.Background(), admission.NewAttributesRecord(asInternal(t, c.is), asInternal(t, c.was), schema.GroupVersionKind{},
					"shop", c.is.Name, schema.GroupVersionResource{Version: "v1", Resource: "services"}, c.sub, op, nil, dry, &user.DefaultInfo{Name: c.is.Name}), nil)
			}
			addresses := func() (lost []string) {
				if c.was == nil || len(c.was.Status.LoadBalancer.Ingress) == 0 {
					return nil
				}
				now, err := client.CoreV1().Services("shop").Get(t.Context(), "tenant", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range c.was.Status.LoadBalancer.Ingress {
					if _, has := entryOf(now, netip.MustParseAddr(i.IP)); !has {
						lost = append(lost, i.IP)
					}
				}
				return lost
			}
			for _, dry := range []bool{true, false} {
				err := validate(dry)
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("it says %v, not %q", err, c.want)
				}
				lost := ""
				if !dry {
					lost = c.lost
				}
				if got := strings.Join(addresses(), " "); got != lost {
					t.Errorf("dry run %t: it loses %q, not %q", dry, got, lost)
				}
			}
		})
	}
}
