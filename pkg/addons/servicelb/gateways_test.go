package servicelb

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// gw is a Gateway; the number is its age.
func gw(name string, age int, changes ...func(*addon.Gateway)) addon.Gateway {
	g := addon.Gateway{
		NamespacedName: types.NamespacedName{Namespace: "default", Name: name}, UID: types.UID(name), Created: time.Unix(1000+int64(age), 0),
		Annotations: map[string]string{}, Ports: []string{"80/TCP"},
	}
	for _, change := range changes {
		change(&g)
	}
	return g
}

func asks(addresses ...string) func(*addon.Gateway) {
	return func(g *addon.Gateway) { g.Asked = addresses }
}

func hasOwn(addresses ...string) func(*addon.Gateway) {
	return func(g *addon.Gateway) {
		for _, a := range addresses {
			g.Has = append(g.Has, netip.MustParseAddr(a))
		}
	}
}

func noted(key, text string) func(*addon.Gateway) {
	return func(g *addon.Gateway) { g.Annotations[key] = text }
}

func onPorts(ports ...string) func(*addon.Gateway) {
	return func(g *addon.Gateway) { g.Ports = ports }
}

// TestGatewayDecisions: which Gateway gets which address, beside Services. The node is a (10.0.0.1), a server.
func TestGatewayDecisions(t *testing.T) {
	auto := addresses(t, "default", "192.0.2.1-192.0.2.3")
	six := addresses(t, "six", "2001:db8::10-2001:db8::20")
	const shared = "metallb.io/allow-shared-ip"
	for name, c := range map[string]struct {
		pools    []pool
		services []*corev1.Service
		gateways []addon.Gateway
		want     map[string]string // addresses, part of the problem after "!", or "nodes"
	}{
		"the oldest first": {[]pool{auto}, []*corev1.Service{lb("s", 2, "80")}, []addon.Gateway{gw("y", 3), gw("x", 1)}, map[string]string{"x": "192.0.2.1", "y": "192.0.2.3"}},
		"what it has":      {[]pool{auto}, nil, []addon.Gateway{gw("x", 1), gw("y", 2, hasOwn("192.0.2.1"))}, map[string]string{"x": "192.0.2.2", "y": "192.0.2.1"}},
		"each family":      {[]pool{auto, six}, nil, []addon.Gateway{gw("x", 1)}, map[string]string{"x": "192.0.2.1,2001:db8::10"}},
		"any":              {[]pool{auto}, nil, []addon.Gateway{gw("x", 1, asks(""))}, map[string]string{"x": "192.0.2.1"}},
		"a certain one":    {[]pool{auto, six}, nil, []addon.Gateway{gw("x", 1, asks("192.0.2.3"))}, map[string]string{"x": "192.0.2.3"}},
		"by annotation":    {[]pool{auto}, nil, []addon.Gateway{gw("x", 1, noted("metallb.universe.tf/loadBalancerIPs", "192.0.2.2"))}, map[string]string{"x": "192.0.2.2"}},
		"changed wish":     {[]pool{auto}, nil, []addon.Gateway{gw("x", 1, hasOwn("192.0.2.1"), asks("192.0.2.3"))}, map[string]string{"x": "192.0.2.3"}},
		"in no pool":       {[]pool{auto}, nil, []addon.Gateway{gw("x", 1, asks("203.0.113.1"))}, map[string]string{"x": "!it is in no pool"}},
		"of a Service":     {[]pool{auto}, []*corev1.Service{lb("s", 1, "80")}, []addon.Gateway{gw("x", 2, asks("192.0.2.1"))}, map[string]string{"x": "!it belongs to Service default/s"}},
		"of a Gateway":     {[]pool{auto}, nil, []addon.Gateway{gw("x", 1), gw("y", 2, asks("192.0.2.1"))}, map[string]string{"x": "192.0.2.1", "y": "!it belongs to Gateway default/x"}},
		"of a node":        {[]pool{auto}, nil, []addon.Gateway{gw("x", 1, asks("10.0.0.1"))}, map[string]string{"x": "nodes"}},
		"of pods":          {[]pool{addresses(t, "p", "10.42.0.7")}, nil, []addon.Gateway{gw("x", 1)}, map[string]string{"x": "!no pool has a free IPv4 address"}},
		"exhausted":        {[]pool{addresses(t, "p", "192.0.2.1")}, nil, []addon.Gateway{gw("x", 1), gw("y", 2)}, map[string]string{"x": "192.0.2.1", "y": "!no pool has a free IPv4 address"}},
		"manual pool":      {[]pool{addresses(t, "p", "manual:192.0.2.1")}, nil, []addon.Gateway{gw("x", 1), gw("y", 2, noted("metallb.io/address-pool", "p"))}, map[string]string{"x": "nodes", "y": "192.0.2.1"}},
		"no pool":          {nil, nil, []addon.Gateway{gw("x", 1)}, map[string]string{"x": "nodes"}},
		"shared": {[]pool{auto}, nil, []addon.Gateway{gw("x", 1, noted(shared, "k")), gw("y", 2, noted(shared, "k"), onPorts("443/TCP")), gw("z", 3, noted(shared, "k"))},
			map[string]string{"x": "192.0.2.1", "y": "192.0.2.1", "z": "192.0.2.2"}},
		"for others":   {[]pool{theirs(t, "p", `{addresses: [192.0.2.9/32], serviceAllocation: {namespaces: [other]}}`), auto}, nil, []addon.Gateway{gw("x", 1)}, map[string]string{"x": "192.0.2.1"}},
		"externalIPs":  {[]pool{addresses(t, "p", "192.0.2.77-192.0.2.78")}, nil, []addon.Gateway{gw("x", 1, hasOwn("192.0.2.77"))}, map[string]string{"x": "192.0.2.78"}},
		"hostile wish": {[]pool{auto}, nil, []addon.Gateway{gw("x", 1, asks("192.0.2.1,192.0.2.2"))}, map[string]string{"x": "!more than one IPv4 address"}},
	} {
		t.Run(name, func(t *testing.T) {
			control := &controller{Balancers: Balancers{Gateways: addon.NewGatewayAddresses(true, true)}}
			in := snapshot{
				services: control.withGateways(c.services, c.gateways, c.pools), nodes: []*corev1.Node{member("a", "10.0.0.1", labelled(controlPlane, "true"))}, pools: c.pools,
				unusable: unusable{ranges: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}},
				external: map[claim]nodePort{{netip.MustParseAddr("192.0.2.77"), port{80, corev1.ProtocolTCP}}: {"other", "Service default/other (externalIPs)"}},
			}
			for _, o := range control.decide(in.plan(reserved).outcomes) {
				if isGateway(o.service) {
					t.Errorf("the stand-in %s is written to the API", o.service.Name)
				}
			}
			for name, want := range c.want {
				got, decided := control.Gateways.Decision(types.UID(name))
				var texts []string
				for _, a := range got.Addresses {
					texts = append(texts, a.String())
				}
				said := strings.Join(texts, ",")
				problem, isProblem := strings.CutPrefix(want, "!")
				switch {
				case !decided || got.Own != (want != "nodes"):
					t.Errorf("%s: %+v, %t, want %s", name, got, decided, want)
				case isProblem && (said != "" || !strings.Contains(got.Problem, problem)):
					t.Errorf("%s: %+v, want the problem %q", name, got, problem)
				case !isProblem && want != "nodes" && said != want:
					t.Errorf("%s: %+v, want %s", name, got, want)
				}
			}
		})
	}
}

// TestGatewayAndExternalIPs: an address that a Gateway gets while a Service is admitted with the same one as externalIPs, which neither knew of, goes to another.
func TestGatewayAndExternalIPs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(member("a", "10.0.0.1", labelled(controlPlane, "true")))
		pools := Pools{Fixed: []config.Pool{addresses(t, "p", "192.0.2.1-192.0.2.2").Pool}}
		gateways := addon.NewGatewayAddresses(true, true)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() {
			stopped <- (Balancers{NodePorts: "30000-32767", Pools: pools, Gateways: gateways}).run(ctx, client)
		}()
		gateways.SetGateways([]addon.Gateway{gw("x", 1)})
		synctest.Wait()
		if d, _ := gateways.Decision("x"); !slices.Equal(d.Addresses, []netip.Addr{netip.MustParseAddr("192.0.2.1")}) {
			t.Errorf("at first it gets %+v", d)
		}
		thief := lb("thief", 2, "80")
		thief.Spec.Type, thief.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, []string{"192.0.2.1"}
		if _, err := client.CoreV1().Services("default").Create(ctx, thief, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * settleTime)
		if d, _ := gateways.Decision("x"); !slices.Equal(d.Addresses, []netip.Addr{netip.MustParseAddr("192.0.2.2")}) {
			t.Errorf("then it gets %+v", d)
		}
		gateways.SetGateways(nil)
		synctest.Wait()
		if _, decided := gateways.Decision("x"); decided {
			t.Error("an address of a Gateway that is gone is kept")
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// TestAdmissionOfGatewaysAddresses: no Service takes the connections of a Gateway away.
func TestAdmissionOfGatewaysAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		ip     string
		want   string
	}{
		"a Gateway's own": {200, gatewayList(true), "192.0.2.7", "belongs to Gateway shop/web"},
		"a free one":      {200, gatewayList(true), "192.0.2.8", ""},
		"a server's":      {200, gatewayList(false), "192.0.2.7", ""},
		"no such kind":    {404, `{"kind": "Status", "code": 404, "reason": "NotFound"}`, "192.0.2.7", ""},
		"not known":       {500, "", "192.0.2.7", "listing Gateways"},
	} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path != gatewaysPath {
					fmt.Fprint(w, `{"items": []}`)
					return
				}
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer api.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
			if err != nil {
				t.Fatal(err)
			}
			p := newPlugin(config.Config{})
			p.client = client
			s := offer("thief", []int32{80}, c.ip)
			gateways, err := gatewayAddresses(t.Context(), client)
			if err == nil {
				err = p.refuse(owners{gateways: gateways}, claimsOf(s)[0], s)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// gatewayList is what the API says: a Gateway with an address, which may be its own.
func gatewayList(own bool) string {
	status := "False"
	if own {
		status = "True"
	}
	return `{"items": [{"metadata": {"namespace": "shop", "name": "web"}, "status": {"addresses": [{"type": "IPAddress", "value": "192.0.2.7"}],
		"conditions": [{"type": "` + addon.OwnAddress + `", "status": "` + status + `"}]}}]}`
}
