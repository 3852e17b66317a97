package servicelb

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// addresses parses a pool from ranges that are separated by commas; manual pools begin with "manual:".
func addresses(t *testing.T, name, ranges string) pool {
	t.Helper()
	p := pool{Pool: config.Pool{Name: name}}
	ranges, p.Manual = strings.CutPrefix(ranges, "manual:")
	for text := range strings.SplitSeq(ranges, ",") {
		r, err := config.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

// theirs parses an IPAddressPool.
func theirs(t *testing.T, name, spec string) pool {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(`{metadata: {name: `+name+`}, spec: `+spec+`}`), &object); err != nil {
		t.Fatal(err)
	}
	p, err := parsePool(&unstructured.Unstructured{Object: object})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func annotated(k, v string) change[*corev1.Service] {
	return func(s *corev1.Service) { s.Annotations[k] = v }
}

func asking(ip string) change[*corev1.Service] {
	return func(s *corev1.Service) { s.Spec.LoadBalancerIP = ip }
}

// TestPools: which Service gets which address. The nodes are a (10.0.0.1), a server, and b (10.0.0.2).
func TestPools(t *testing.T) {
	class := Class
	near := func(app string) change[*corev1.Service] {
		return func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.Selector = corev1.ServiceExternalTrafficPolicyLocal, map[string]string{"app": app}
		}
	}
	auto := addresses(t, "default", "192.0.2.1-192.0.2.3")
	for name, c := range map[string]struct {
		pools    []pool
		services []*corev1.Service
		want     map[string]string // addresses, or part of the condition's message after "!"
	}{
		"the oldest first": {[]pool{auto}, []*corev1.Service{lb("y", 2, "80"), lb("x", 1, "80")}, map[string]string{"x": "192.0.2.1", "y": "192.0.2.2"}},
		"what it has":      {[]pool{auto}, []*corev1.Service{lb("x", 1, "80"), lb("y", 2, "80", has("192.0.2.1"))}, map[string]string{"x": "192.0.2.2", "y": "192.0.2.1"}},
		"exhausted": {[]pool{addresses(t, "default", "192.0.2.1")}, []*corev1.Service{lb("x", 1, "80"), lb("y", 2, "81")},
			map[string]string{"x": "192.0.2.1", "y": "!no pool has a free IPv4 address"}},
		"no pool for all":            {[]pool{addresses(t, "some", "manual:192.0.2.1")}, []*corev1.Service{lb("x", 1, "80")}, map[string]string{"x": "10.0.0.1,10.0.0.2"}},
		"class of nodes' addresses":  {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class })}, map[string]string{"x": "10.0.0.1,10.0.0.2"}},
		"a node's address asked for": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", asking("10.0.0.2"))}, map[string]string{"x": "10.0.0.2"}},
		"from nodes to a pool":       {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", has("10.0.0.1", "10.0.0.2"))}, map[string]string{"x": "192.0.2.1"}},
		"manual, by its name": {[]pool{auto, addresses(t, "some", "manual:192.0.2.9")}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/address-pool", "some"))},
			map[string]string{"x": "192.0.2.9"}},
		"manual, by an address": {[]pool{addresses(t, "some", "manual:192.0.2.8-192.0.2.9")}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.universe.tf/loadBalancerIPs", "192.0.2.9"))},
			map[string]string{"x": "192.0.2.9"}},
		"asked for, by an annotation": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/loadBalancerIPs", "192.0.2.3"))}, map[string]string{"x": "192.0.2.3"}},
		"asked for, in two families": {[]pool{auto, addresses(t, "six", "2001:db8::10-2001:db8::20")},
			[]*corev1.Service{lb("x", 1, "80", families(corev1.IPv4Protocol, corev1.IPv6Protocol), annotated("metallb.io/loadBalancerIPs", "2001:db8::1f, 192.0.2.2"))}, map[string]string{"x": "192.0.2.2,2001:db8::1f"}},
		"asked for, by both names": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.universe.tf/loadBalancerIPs", "192.0.2.1"), annotated("metallb.io/loadBalancerIPs", "192.0.2.2"))},
			map[string]string{"x": "192.0.2.2"}},
		"manual, by its former name": {[]pool{auto, addresses(t, "some", "manual:192.0.2.9")}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.universe.tf/address-pool", "some"))},
			map[string]string{"x": "192.0.2.9"}},
		"loadBalancerIP":            {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", asking("192.0.2.3"))}, map[string]string{"x": "192.0.2.3"}},
		"asked for, in no pool":     {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", asking("192.0.2.99"))}, map[string]string{"x": "!it asks for 192.0.2.99, but it is in no pool"}},
		"asked for, but no address": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/loadBalancerIPs", "web"))}, map[string]string{"x": `!it asks for "web", which is no address`}},
		"asked for, two":            {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/loadBalancerIPs", "192.0.2.1,192.0.2.2"))}, map[string]string{"x": "!more than one IPv4 address"}},
		"asked for, with a zone":    {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/loadBalancerIPs", "fd00::1%x"))}, map[string]string{"x": "!with a zone"}},
		"asked for, but taken": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80"), lb("y", 2, "81", asking("192.0.2.1"))},
			map[string]string{"x": "192.0.2.1", "y": "!it belongs to Service default/x"}},
		"changed wish":                   {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", has("192.0.2.1"), asking("192.0.2.2"))}, map[string]string{"x": "192.0.2.2"}},
		"no such pool":                   {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/address-pool", "none"))}, map[string]string{"x": "!it asks for the pool none, which does not exist"}},
		"a node's own address in a pool": {[]pool{addresses(t, "default", "10.0.0.1-10.0.0.3")}, []*corev1.Service{lb("x", 1, "80")}, map[string]string{"x": "10.0.0.3"}},
		"broadcast":                      {[]pool{addresses(t, "default", "198.51.100.255-198.51.101.0")}, []*corev1.Service{lb("x", 1, "80")}, map[string]string{"x": "198.51.101.0"}},
		"of pods":                        {[]pool{addresses(t, "default", "10.42.0.7,192.0.2.1")}, []*corev1.Service{lb("x", 1, "80")}, map[string]string{"x": "192.0.2.1"}},
		"for others": {[]pool{theirs(t, "others", `{addresses: [192.0.2.50/32], serviceAllocation: {namespaces: [other]}}`), auto}, []*corev1.Service{lb("x", 1, "80"), lb("y", 2, "80", asking("192.0.2.50"))},
			map[string]string{"x": "192.0.2.1", "y": "!the pool others is for other Services"}},
		"by a label": {[]pool{theirs(t, "labelled", `{addresses: [192.0.2.50/32], serviceAllocation: {serviceSelectors: [{matchLabels: {tier: front}}]}}`), auto},
			[]*corev1.Service{lb("x", 1, "80"), lb("y", 2, "80", label("tier", "front"))}, map[string]string{"x": "192.0.2.1", "y": "192.0.2.50"}},
		"buggy":                  {[]pool{theirs(t, "p", `{addresses: [198.51.101.0-198.51.101.1], avoidBuggyIPs: true}`)}, []*corev1.Service{lb("x", 1, "80")}, map[string]string{"x": "198.51.101.1"}},
		"autoAssign false":       {[]pool{theirs(t, "p", `{addresses: [198.51.101.1-198.51.101.9], autoAssign: false}`)}, []*corev1.Service{lb("x", 1, "80")}, map[string]string{"x": "10.0.0.1,10.0.0.2"}},
		"externalIPs of another": {[]pool{addresses(t, "default", "192.0.2.77-192.0.2.78")}, []*corev1.Service{lb("x", 1, "80"), lb("y", 2, "81")}, map[string]string{"x": "192.0.2.78", "y": "192.0.2.77"}},
		"shared": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/allow-shared-ip", "k")), lb("y", 2, "443", annotated("metallb.universe.tf/allow-shared-ip", "k"))},
			map[string]string{"x": "192.0.2.1", "y": "192.0.2.1"}},
		"not shared: the same port": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/allow-shared-ip", "k")), lb("y", 2, "80", annotated("metallb.io/allow-shared-ip", "k"))},
			map[string]string{"x": "192.0.2.1", "y": "192.0.2.2"}},
		"not shared: other pods": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", annotated("metallb.io/allow-shared-ip", "k"), near("x")), lb("y", 2, "443", annotated("metallb.io/allow-shared-ip", "k"), near("y"))},
			map[string]string{"x": "192.0.2.1", "y": "192.0.2.2"}},
		"two families": {[]pool{auto, addresses(t, "six", "2001:db8::10-2001:db8::20")}, []*corev1.Service{lb("x", 1, "80", families(corev1.IPv6Protocol, corev1.IPv4Protocol))},
			map[string]string{"x": "2001:db8::10,192.0.2.1"}},
		"one family missing": {[]pool{auto}, []*corev1.Service{lb("x", 1, "80", families(corev1.IPv4Protocol, corev1.IPv6Protocol))}, map[string]string{"x": "192.0.2.1"}},
		"released by another first": {[]pool{addresses(t, "default", "192.0.2.1")},
			[]*corev1.Service{lb("x", 1, "80"), lb("y", 2, "80", has("192.0.2.1"), func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class })},
			map[string]string{"x": "!no pool has a free IPv4 address"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := snapshot{
				services: c.services, nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(controlPlane, "true")), member("b", "10.0.0.2")}, pools: c.pools,
				unusable: unusable{addrs: map[netip.Addr]string{netip.MustParseAddr("198.51.100.255"): "a broadcast address"}, ranges: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}},
				external: map[claim]nodePort{{netip.MustParseAddr("192.0.2.77"), port{80, corev1.ProtocolTCP}}: {"other", "Service default/other (externalIPs)"}},
			}
			for _, n := range in.nodes {
				n.Annotations[heldAnnotation] = `{"asked":"80/TCP,81/TCP,443/TCP"}`
			}
			for _, s := range c.services {
				if len(s.Status.LoadBalancer.Ingress) > 0 { // else they would be another load balancer's
					s.Status.Conditions = []metav1.Condition{{Type: readyCondition}}
				}
			}
			for _, o := range in.plan(reserved).outcomes {
				want, told := c.want[o.service.Name]
				var got []string
				for _, i := range o.ingress {
					got = append(got, i.IP)
				}
				message, isMessage := strings.CutPrefix(want, "!")
				switch {
				case !told:
				case isMessage && (len(got) > 0 || !strings.Contains(o.ready.Message, message) || o.ready.Reason != noAddress):
					t.Errorf("%s has %v, and %s: %s, not %q", o.service.Name, got, o.ready.Reason, o.ready.Message, message)
				case !isMessage && strings.Join(got, ",") != want:
					t.Errorf("%s has %v, not %s: %s", o.service.Name, got, want, o.ready.Message)
				}
			}
		})
	}
}

// TestAnnounced: which nodes may announce an address.
func TestAnnounced(t *testing.T) {
	ready := func(s *corev1.Service) { s.Status.Conditions = []metav1.Condition{{Type: readyCondition}} }
	x := lb("x", 1, "80", has("192.0.2.1"), ready)
	near := lb("near", 2, "80", has("192.0.2.2"), ready, local)
	in := snapshot{
		services: []*corev1.Service{
			x, near,
			lb("written", 3, "80", has("203.0.113.1"), ready), // somebody wrote an address into its status that is in no pool
			lb("own", 4, "80", has("10.0.0.1"), ready),
		},
		nodes: []*corev1.Node{
			member("a", "10.0.0.1", labelled(controlPlane, "true")), member("b", "10.0.0.2"), member("c", "10.0.0.3"),
			member("unready", "10.0.0.4", notReady),
			member("excluded", "10.0.0.5", labelled(corev1.LabelNodeExcludeBalancers, "")),
		},
		endpoints: map[types.NamespacedName]places{{Namespace: "default", Name: "near"}: {ready: map[string]bool{"b": true}}},
		pools:     []pool{addresses(t, "default", "192.0.2.1-192.0.2.9,10.0.0.1")},
	}
	ip := netip.MustParseAddr
	got, ports := in.announced([]addon.Gateway{ // one that has an address of its own, one that shares one, and one with what is in no pool
		{Has: []netip.Addr{ip("192.0.2.3")}, Ports: []string{"80/TCP"}}, {Has: []netip.Addr{ip("192.0.2.2")}, Ports: []string{"53/UDP"}}, {Has: []netip.Addr{ip("203.0.113.2")}},
	})
	for text, want := range map[string][]string{"192.0.2.1": {"a", "b", "c"}, "192.0.2.2": nil, "192.0.2.3": {"a"}, "203.0.113.1": nil, "203.0.113.2": nil, "10.0.0.1": nil} {
		if names := got[ip(text)]; !slices.Equal(names, want) {
			t.Errorf("%s may be announced by %v, not %v", text, names, want)
		}
	}
	if want := map[netip.Addr][]string{ip("192.0.2.2"): {"53/UDP"}, ip("192.0.2.3"): {"80/TCP"}}; !maps.EqualFunc(ports, want, slices.Equal) {
		t.Errorf("the ports of Gateways are %v, not %v", ports, want)
	}
}

// TestCapped: a wish, however long, makes no long condition.
func TestCapped(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 5000), strings.Repeat("ä", 5000)} {
		if got := capped(text); len(got) > 1024 || !strings.HasSuffix(got, "...") || strings.Contains(got, "\uFFFD") {
			t.Errorf("%d bytes", len(got))
		}
	}
}

// TestPoolsExist: only a cluster that says so has no IPAddressPools.
func TestPoolsExist(t *testing.T) {
	if there, err := poolsExist(apierrors.NewNotFound(schema.GroupResource{}, "")); there || err != nil {
		t.Error(there, err)
	}
	if there, err := poolsExist(apierrors.NewTooManyRequests("", 1)); there || err == nil {
		t.Error("an overloaded server counts as one without pools")
	}
	if there, err := poolsExist(nil); !there || err != nil {
		t.Error(there, err)
	}
}

// TestLongAnnotations: what a Service's annotations say is neither parsed nor compared for long, which would keep the controller from others' Services.
func TestLongAnnotations(t *testing.T) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		k3sTolerations:     "[{key: gpu}]" + strings.Repeat(" ", mostTolerations-12),
		wantedAddresses[0]: strings.Repeat("192.0.2.1,", 20_000) + "2001:db8::1",
	}}}
	if got := tolerations(s); len(got) != 1 {
		t.Errorf("the tolerations are %v", got)
	}
	if s.Annotations[k3sTolerations] += " "; tolerations(s) != nil {
		t.Error("an annotation that is too long is parsed")
	}
	if s.Annotations[k3sTolerations] = "[&a {key: gpu}, *a]"; tolerations(s) != nil {
		t.Error("an annotation with aliases is parsed")
	}
	if got, problem := requested(s); problem != "" || len(got) != 2 {
		t.Errorf("%d addresses are asked for: %q", len(got), problem)
	}
}
