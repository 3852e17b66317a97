package nodeadmission

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/apis/coordination"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

const enableLB = "svccontroller.k3s.cattle.io/enablelb"

// other is a Node of the cluster.
func other(name, internal, external string, ready corev1.ConditionStatus, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: internal}, {Type: corev1.NodeExternalIP, Address: external}}
	if change != nil {
		change(n)
	}
	return n
}

// claim is that of a node whose machine told what is in the annotation when it joined; "" tells nothing.
func claim(name, machine string) *coordinationv1.Lease {
	key := "key"
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: endpoint.ClaimPrefix + name}}
	l.Spec.HolderIdentity = &key
	if machine != "" {
		l.Annotations = map[string]string{"coracle.io/machine": machine}
	}
	return l
}

func service(name string, spec corev1.ServiceSpec, ingress ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
	for _, ip := range ingress {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return s
}

// balanced has addresses of nodes.
func balanced(s *corev1.Service) *corev1.Service {
	s.Status.Conditions = []metav1.Condition{{Type: kube.LoadBalancerCondition}}
	return s
}

func plugin(t *testing.T) *Plugin {
	cfg := config.Config{Node: config.Node{Name: "server-1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}
	cfg.Network.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}
	cfg.Network.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}
	p := New(cfg)
	client := fake.NewClientset(
		claim("a", `{"key":"key","addresses":["192.0.2.10","192.0.2.3"],"external":["203.0.113.10"],"labels":{"svccontroller.k3s.cattle.io/enablelb":"true"}}`),
		claim("former", ""), claim("new-server", `{"key":"key","server":true,"addresses":["192.0.2.5"]}`), claim("stale", `{"key":"another","addresses":["192.0.2.99"],"labels":{"svccontroller.k3s.cattle.io/enablelb":"true"}}`),
		other("server-2", "192.0.2.2", "203.0.113.2", corev1.ConditionFalse, func(n *corev1.Node) {
			n.Labels, n.Annotations = map[string]string{kube.ControlPlaneLabel: "true"}, map[string]string{kube.APINamesAnnotation: "api.test,192.0.2.200"}
		}),
		other("b", "192.0.2.3", "203.0.113.9", corev1.ConditionTrue, func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.42.1.0/24"} }),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "edge", Annotations: map[string]string{staticLabels: "true"}}},
		other("dead", "192.0.2.4", "203.0.113.4", corev1.ConditionUnknown, func(n *corev1.Node) {
			n.Annotations = map[string]string{backendDataKey: `{"VNI":1,"VtepMAC":"aa:bb:cc:00:11:22"}`}
		}),
		other("squatter", "192.0.2.20", "203.0.113.20", corev1.ConditionTrue, func(n *corev1.Node) {
			n.Annotations = map[string]string{kube.SeenAddresses: ""}
		}),
		other("seen", "192.0.2.21", "203.0.113.21", corev1.ConditionTrue, func(n *corev1.Node) {
			n.Annotations = map[string]string{kube.SeenAddresses: "192.0.2.21", backendDataKey: `{"PublicKey":"` + strings.Repeat("B", 42) + `A="}`}
		}),
		service("web", corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.050"}}),
		service("metallb", corev1.ServiceSpec{}, "192.0.2.51"), balanced(service("own", corev1.ServiceSpec{}, "192.0.2.10")),
	)
	factory := informers.NewSharedInformerFactory(client, 0)
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(factory)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return p
}

// from is the context of a request from an address.
func from(ip string) context.Context {
	r := httptest.NewRequest(http.MethodPatch, "/api/v1/nodes/a/status", nil)
	r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(ip), 1234).String()
	return kube.WithPeer(r).Context()
}

func withAddresses(list string) *core.Node {
	return node(func(n *core.Node) {
		n.Annotations = map[string]string{}
		for one := range strings.FieldsSeq(list) {
			kind := core.NodeInternalIP
			if ext, ok := strings.CutPrefix(one, "ext:"); ok {
				kind, one = core.NodeExternalIP, ext
			} else if one == "a" || one == "kubernetes" {
				kind = core.NodeHostName
			}
			n.Status.Addresses = append(n.Status.Addresses, core.NodeAddress{Type: kind, Address: one})
		}
	})
}

func TestAddresses(t *testing.T) {
	p := plugin(t)
	const created = "" // there was no Node
	for name, c := range map[string]struct{ node, source, was, is, want string }{
		"registers":                          {"a", "192.0.2.10", created, "192.0.2.10 a", "192.0.2.10 a"},
		"registers behind a NAT":             {"a", "198.51.100.1", created, "192.0.2.10 a", "192.0.2.10 a"},
		"registers as another":               {"a", "192.0.2.10", created, "192.0.2.10 kubernetes", "192.0.2.10"},
		"registers with a server's":          {"a", "192.0.2.10", created, "192.0.2.2 a", "a"},
		"registers with this server's":       {"a", "192.0.2.10", created, "192.0.2.1 a", "a"},
		"what it joined with is another's":   {"a", "192.0.2.10", created, "192.0.2.3 a", "a"},
		"a release before":                   {"former", "192.0.2.77", created, "192.0.2.78", "192.0.2.78"},
		"a release before, a Service's":      {"former", "192.0.2.77", created, "192.0.2.50", ""},
		"a release before, external":         {"former", "192.0.2.77", created, "192.0.2.77 ext:203.0.113.77", "192.0.2.77"},
		"another machine joined":             {"stale", "192.0.2.77", "192.0.2.77", "192.0.2.99", "192.0.2.77"},
		"a second family, not told":          {"a", "192.0.2.10", created, "192.0.2.10 2001:db8::10 a", "192.0.2.10 2001:db8::10 a"},
		"a second family, later":             {"a", "192.0.2.10", "192.0.2.10 a", "192.0.2.10 2001:db8::10 a", "192.0.2.10 a"},
		"its address changes":                {"a", "192.0.2.11", "192.0.2.10 a", "192.0.2.11 a", "192.0.2.11 a"},
		"back to what it joined with":        {"a", "198.51.100.1", "192.0.2.11 a", "192.0.2.10 a", "192.0.2.10 a"},
		"it says so only":                    {"a", "192.0.2.10", "192.0.2.10 a", "192.0.2.12 a", "192.0.2.10 a"},
		"one of two":                         {"a", "192.0.2.11", "192.0.2.10 2001:db8::1", "192.0.2.11 2001:db8::2", "192.0.2.11 2001:db8::1"},
		"a neighbour's":                      {"a", "192.0.2.3", "192.0.2.10", "192.0.2.3", "192.0.2.10"},
		"a dead one's":                       {"a", "192.0.2.4", "192.0.2.10", "192.0.2.4", "192.0.2.4"},
		"a dead one's, not seen":             {"a", "192.0.2.10", "192.0.2.10", "192.0.2.4", "192.0.2.10"},
		"a dead server's":                    {"a", "192.0.2.2", "192.0.2.10", "192.0.2.2", "192.0.2.10"},
		"an address of the API":              {"a", "192.0.2.200", "192.0.2.10", "192.0.2.200", "192.0.2.10"},
		"a Service's network":                {"a", "192.0.2.10", "192.0.2.10", "10.43.0.1", "192.0.2.10"},
		"loopback":                           {"a", "192.0.2.10", "192.0.2.10", "127.0.0.1", "192.0.2.10"},
		"a claim of somebody else":           {"a", "192.0.2.20", created, "192.0.2.20", "192.0.2.20"},
		"a claim of somebody else, not seen": {"former", "192.0.2.10", created, "192.0.2.20", ""},
		"where another one is seen":          {"a", "192.0.2.21", created, "192.0.2.21", ""},
		"keeps what another one only claims": {"a", "192.0.2.77", "192.0.2.20", "192.0.2.20", "192.0.2.20"},
		"loses where another one is seen":    {"a", "192.0.2.77", "192.0.2.10 192.0.2.21", "192.0.2.10 192.0.2.21", "192.0.2.10"},
		"a load balancer's":                  {"former", "192.0.2.77", created, "192.0.2.51", ""},
		"its own, of a load balancer":        {"a", "192.0.2.77", created, "192.0.2.10", "192.0.2.10"},
		"a zone":                             {"former", "192.0.2.77", created, "fd00::1%x", ""},
		"another spelling":                   {"former", "192.0.2.77", created, "::ffff:192.0.2.3 FD00::1", ""},
		"too many": {"former", "192.0.2.77", created, "10.9.0.1 10.9.0.2 10.9.0.3 10.9.0.4 10.9.0.5 10.9.0.6 10.9.0.7 10.9.0.8 10.9.0.9 10.9.0.10 10.9.0.11 " +
			"10.9.0.12 10.9.0.13 10.9.0.14 10.9.0.15 10.9.0.16 10.9.0.17", "10.9.0.1 10.9.0.2 10.9.0.3 10.9.0.4 10.9.0.5 10.9.0.6 10.9.0.7 10.9.0.8 10.9.0.9 10.9.0.10 " +
			"10.9.0.11 10.9.0.12 10.9.0.13 10.9.0.14 10.9.0.15 10.9.0.16"},
		"external, joined with":              {"a", "192.0.2.10", "192.0.2.10", "192.0.2.10 ext:203.0.113.10", "192.0.2.10 ext:203.0.113.10"},
		"external, of its choice":            {"a", "192.0.2.10", "192.0.2.10", "192.0.2.10 ext:203.0.113.11", "192.0.2.10"},
		"external, only seen":                {"former", "192.0.2.77", "192.0.2.77", "192.0.2.77 ext:192.0.2.77", "192.0.2.77"},
		"external, seen, instead of another": {"former", "203.0.113.78", "192.0.2.77 ext:203.0.113.77", "192.0.2.77 ext:203.0.113.78", "192.0.2.77 ext:203.0.113.78"},
		"seen in a Service's network":        {"a", "10.43.0.1", "192.0.2.10", "192.0.2.10 10.43.0.1", "192.0.2.10"},
		"external, shared behind one NAT":    {"a", "203.0.113.9", "192.0.2.10", "192.0.2.10 ext:203.0.113.9", "192.0.2.10 ext:203.0.113.9"},
		"external, of others, not seen":      {"a", "192.0.2.10", "192.0.2.10", "192.0.2.10 ext:203.0.113.9", "192.0.2.10"},
		"before the upgrade":                 {"former", "192.0.2.10", "192.0.2.3 ext:203.0.113.9", "192.0.2.3 ext:203.0.113.9", "192.0.2.3 ext:203.0.113.9"},
		"an administrator permits it":        {"a", "192.0.2.10", "192.0.2.10 permitted", "192.0.2.12", "192.0.2.12"},
		"a server's own":                     {"server-1", "127.0.0.1", created, "192.0.2.1 ext:203.0.113.77", "192.0.2.1 ext:203.0.113.77"},
		"permitted, but it is another's":     {"a", "192.0.2.10", "192.0.2.10 permitted", "192.0.2.3", "192.0.2.10"},
		"a server's, by its control plane's": {"server-2", "192.0.2.2", "192.0.2.2 server", "192.0.2.22", "192.0.2.22"},
	} {
		t.Run(name, func(t *testing.T) {
			var old runtime.Object
			if c.was != created {
				was := withAddresses(strings.NewReplacer("permitted", "", "server", "").Replace(c.was))
				was.Annotations[kube.AllowedAddresses] = map[bool]string{true: "192.0.2.12,192.0.2.3"}[strings.Contains(c.was, "permitted")]
				if strings.Contains(c.was, "server") {
					was.Labels[kube.ControlPlaneLabel] = "true"
				}
				old = was
			}
			now := withAddresses(c.is)
			if err := p.Admit(from(c.source), attributes("system:node:"+c.node, "status", now, old), nil); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range now.Status.Addresses {
				got = append(got, map[core.NodeAddressType]string{core.NodeExternalIP: "ext:"}[a.Type]+a.Address)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

func TestRegisters(t *testing.T) {
	p := plugin(t)
	for name, want := range map[string]string{"a": "true", "former": "", "stale": ""} {
		now := node(func(n *core.Node) { n.Labels[enableLB], n.Labels["example.com/zone"] = "true", "b" })
		err := p.Admit(from("192.0.2.10"), attributes("system:node:"+name, "", now, nil), nil)
		if err != nil || now.Labels[enableLB] != want || now.Labels["example.com/zone"] != "b" {
			t.Errorf("%s: %v has %v", name, err, now.Labels)
		}
		if want == "" && !strings.HasSuffix(p.told[name].text, "kubectl label node "+name+" "+enableLB+"=true") {
			t.Errorf("%s is told %s", name, p.told[name].text)
		}
		host, named := now.Labels["kubernetes.io/hostname"]
		if named != (name == "a") || named && host != name {
			t.Errorf("%s registered with the name %q", name, host)
		}
	}
	err := p.Admit(from("192.0.2.10"), attributes("system:node:unknown", "", node(nil), nil), nil)
	if err == nil || !strings.Contains(err.Error(), "no machine has joined as node unknown") {
		t.Errorf("a node without a claim: %v", err)
	}
}

// TestOwn: the server's node name alone gives no trust.
func TestOwn(t *testing.T) {
	for key, want := range map[string]string{"key": "true", "another": "", "": ""} {
		p := plugin(t)
		p.own, p.key = "former", key
		now := node(func(n *core.Node) { n.Labels[enableLB] = "true" })
		if err := p.Admit(from("192.0.2.10"), attributes("system:node:former", "", now, nil), nil); err != nil || now.Labels[enableLB] != want {
			t.Errorf("the server has key %q, and the machine that joined as its node %v, %v", key, now.Labels, err)
		}
	}
}

// TestSeen: the plugin notes at which addresses a node was seen, as long as it has them.
func TestSeen(t *testing.T) {
	p := plugin(t)
	for _, c := range [][4]string{
		{"", "192.0.2.10 2001:db8::10", "192.0.2.10", "192.0.2.10"},
		{"192.0.2.10", "192.0.2.10 2001:db8::10", "2001:db8::10", "192.0.2.10,2001:db8::10"},
		{"192.0.2.10", "2001:db8::10", "198.51.100.1", ""},
	} {
		was, now := withAddresses(c[1]), withAddresses(c[1])
		was.Annotations[kube.SeenAddresses], now.Annotations[kube.SeenAddresses] = c[0], "192.0.2.1"
		a := attributes(kubelet, "status", now, was)
		err := errors.Join(p.Admit(from(c[2]), a, nil), p.Validate(from(c[2]), a, nil))
		if got := now.Annotations[kube.SeenAddresses]; err != nil || got != c[3] {
			t.Errorf("%v: got %q, %v", c, got, err)
		}
	}
}

// TestRequested: annotations from which the control plane and other nodes take addresses.
func TestRequested(t *testing.T) {
	p := plugin(t)
	const external, provided = kube.ExternalIPAnnotation, "alpha.kubernetes.io/provided-node-ip"
	for name, c := range map[string]struct{ key, was, is, want, refused string }{
		"external":                            {external, "", "203.0.113.10,203.0.113.99", "203.0.113.10", ""},
		"external, none":                      {external, "", "203.0.113.99", "none", ""},
		"external, another one":               {external, "203.0.113.10", "203.0.113.99", "203.0.113.10", ""},
		"internal":                            {provided, "192.0.2.10", "192.0.2.2", "192.0.2.10", ""},
		"internal, another one is seen there": {provided, "192.0.2.10,192.0.2.21", "192.0.2.10,192.0.2.21", "192.0.2.10", ""},
		"internal, only where another one is": {provided, "192.0.2.21", "192.0.2.21", "", ""},
		"internal, first":                     {provided, "", "192.0.2.2", "", ""},
		"the pod network":                     {publicIPKey, "", "192.0.2.10", "192.0.2.10", ""},
		"a neighbour's pod network":           {publicIPKey, "192.0.2.10", "192.0.2.3", "", "cannot be reached at 192.0.2.3: it is that of node b"},
		"a MAC address":                       {backendDataKey, "", `{"VNI":1,"VtepMAC":"aa:bb:cc:00:11:33"}`, `{"VNI":1,"VtepMAC":"aa:bb:cc:00:11:33"}`, ""},
		"another's MAC address":               {backendDataKey, "", `{"VtepMAC":"AA:bb:cc:00:11:22"}`, "", "node dead has aa:bb:cc:00:11:22 in the pod network"},
		"another's, with dashes":              {backendDataKey, "", `{"VtepMAC":"AA-BB-CC-00-11-22"}`, "", "node dead has aa:bb:cc:00:11:22"},
		"another's, with dots":                {backendV6DataKey, "", `{"VtepMAC":"aabb.cc00.1122"}`, "", "node dead has aa:bb:cc:00:11:22"},
		"another's, beside a key":             {backendDataKey, "", `{"VtepMAC":"aa:bb:cc:00:11:22","PublicKey":"` + strings.Repeat("A", 43) + `="}`, "", "node dead has aa:bb:cc:00:11:22"},
		"all MAC addresses":                   {backendDataKey, "", `{"VtepMAC":"ff:ff:ff:ff:ff:ff"}`, "", "is not the MAC address of a device"},
		"no MAC address":                      {backendDataKey, "", `{"VtepMAC":"00:00:00:00:00:00"}`, "", "is not the MAC address of a device"},
		"a long MAC address":                  {backendDataKey, "", `{"VtepMAC":"aa:bb:cc:00:11:22:33:44"}`, "", "is not the MAC address of a device"},
		"another's key":                       {backendDataKey, "", `{"PublicKey":"` + strings.Repeat("B", 42) + `B="}`, "", "node seen has BBBB"},
		"no key":                              {backendDataKey, "", `{"PublicKey":"BB=="}`, "", "is not a key of WireGuard"},
		"another backend":                     {backendDataKey, "", `null`, "null", ""},
		"65 addresses":                        {provided, "192.0.2.10", strings.Repeat("192.0.2.9,", 64) + "192.0.2.9", "", "asks for 65 addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			with := func(value string) *core.Node {
				n := withAddresses("192.0.2.10")
				if value != "" {
					n.Annotations[c.key] = value
				}
				return n
			}
			now := with(c.is)
			err := p.Admit(from("192.0.2.10"), attributes(kubelet, "status", now, with(c.was)), nil)
			switch {
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)), c.refused == "" && err != nil:
				t.Errorf("got %v, want %q", err, c.refused)
			case c.refused == "" && now.Annotations[c.key] != c.want:
				t.Errorf("it has %v", now.Annotations)
			}
		})
	}
}

// TestManyAddresses: what a node is told of, and the log, do not grow with what it asks for.
func TestManyAddresses(t *testing.T) {
	p := plugin(t)
	is := func(n int) *core.Node {
		now := withAddresses("192.0.2.10 a")
		for i := range n {
			now.Status.Addresses = append(now.Status.Addresses, core.NodeAddress{Type: core.NodeInternalIP, Address: fmt.Sprintf("10.43.0.%d%s", i, strings.Repeat("0", 2000))})
		}
		return now
	}
	err := p.Admit(from("192.0.2.10"), attributes(kubelet, "status", is(40_000), withAddresses("192.0.2.10 a")), nil)
	if err == nil || !strings.Contains(err.Error(), "asks for 40002 addresses") {
		t.Error(err)
	}
	err = p.Admit(from("192.0.2.10"), attributes(kubelet, "status", is(60), withAddresses("192.0.2.10 a")), nil)
	first := p.told["a"].text
	if err != nil || len(first) > 2500 || !strings.HasSuffix(first, "and 55 more") {
		t.Errorf("%v, told %d bytes: %s", err, len(first), first)
	}
	if err := p.Admit(from("192.0.2.10"), attributes(kubelet, "status", is(3), withAddresses("192.0.2.10 a")), nil); err != nil || p.told["a"].text != first {
		t.Errorf("%v, told at once: %s", err, p.told["a"].text)
	}
}

// deletes allows its users to delete Nodes.
type deletes []string

func (d deletes) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if strings.Contains(strings.Join(d, " "), a.GetUser().GetName()) && a.GetVerb() == "delete" && a.GetResource() == "nodes" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestClaims(t *testing.T) {
	p := plugin(t)
	p.SetUnconditionalAuthorizer(deletes{admin, "system:coracle"})
	for name, c := range map[string]struct {
		who, namespace, requested, lease string
		op                               admission.Operation
		refused                          bool
	}{
		"administrator": {admin, "kube-system", "coracle-node-a", "coracle-node-a", admission.Update, false},
		"coracle":       {"system:coracle", "kube-system", "coracle-node-a", "coracle-node-a", admission.Create, false},
		"edit":          {"tenant", "kube-system", "coracle-node-a", "coracle-node-a", admission.Update, true},
		"create":        {"tenant", "kube-system", "", "coracle-node-new", admission.Create, true},
		"delete all":    {"tenant", "kube-system", "", "coracle-node-a", admission.Delete, true},
		"a node":        {kubelet, "kube-system", "coracle-node-a", "coracle-node-a", admission.Update, true},
		"another Lease": {"tenant", "kube-system", "kube-scheduler", "kube-scheduler", admission.Update, false},
		"elsewhere":     {"tenant", "shop", "coracle-node-a", "coracle-node-a", admission.Create, false},
	} {
		t.Run(name, func(t *testing.T) {
			var is, was runtime.Object = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.lease}}, nil
			if c.op == admission.Delete {
				is, was = nil, is
			}
			err := p.Validate(t.Context(), admission.NewAttributesRecord(is, was, schema.GroupVersionKind{}, c.namespace, c.requested,
				schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, "", c.op, nil, false,
				&user.DefaultInfo{Name: c.who}), nil)
			if (err != nil) != c.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
