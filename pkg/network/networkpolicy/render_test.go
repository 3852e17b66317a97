package networkpolicy

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"
	"sigs.k8s.io/yaml"

	"github.com/coracle-dev/coracle/test/golden"
)

func readPolicy(t *testing.T, file string) *networkingv1.NetworkPolicy {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &networkingv1.NetworkPolicy{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func podOf(namespace, name string, labels map[string]string, local bool, ports []namedPort, addrs ...string) *pod {
	p := &pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: podKey(namespace, name, name), Labels: labels}, local: local, ports: ports}
	for _, a := range addrs {
		p.addrs = append(p.addrs, netip.MustParseAddr(a))
	}
	return p
}

func at(p *pod, addrs ...string) *attachment {
	a := &attachment{sandbox: "sandbox-" + p.Name, namespace: p.Namespace, name: p.Name, uid: p.UID}
	for _, addr := range addrs {
		a.addrs = append(a.addrs, netip.MustParseAddr(addr))
	}
	return a
}

// TestTransaction writes down what nft is told of one policy with everything in it, for each kind of network, and of
// what happens after.
func TestTransaction(t *testing.T) {
	for name, prefixes := range map[string][]netip.Prefix{"ipv4": dual[:1], "ipv6": dual[1:], "dual": dual} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(familiesOf(prefixes))
			web := podOf("x", "web", map[string]string{"app": "web"}, true, []namedPort{{portName{"http", "tcp"}, 8080}})
			e.setNamespace("x", nil)
			e.setNamespace("y", map[string]string{"team": "ops"})
			e.attach(at(web, "10.42.0.2", "fd42::2"))
			e.setPod(web)
			e.setPod(podOf("x", "client", map[string]string{"app": "client"}, false, nil, "10.42.1.2", "fd42:0:0:1::2"))
			e.setPod(podOf("y", "db", map[string]string{"app": "db"}, false, []namedPort{{portName{"db", "tcp"}, 5432}}, "10.42.1.3", "fd42:0:0:1::3"))
			if err := e.setPolicy(readPolicy(t, "testdata/rich.yaml")); err != nil {
				t.Fatal(err)
			}
			kernel := knftables.NewFake(knftables.InetFamily, tableName)
			var got strings.Builder
			step := func(what string, write func(*knftables.Transaction)) {
				tx := kernel.NewTransaction()
				write(tx)
				if err := kernel.Run(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				got.WriteString("# " + what + "\n" + tx.String())
			}
			step("start", func(tx *knftables.Transaction) { e.table.writeAll(tx, network{prefixes, "cni0"}) })
			e.setPod(podOf("x", "client", map[string]string{"app": "other"}, false, nil, "10.42.1.2", "fd42:0:0:1::2"))
			step("the client is one no more", e.table.write)
			e.removePolicy("x", "rich")
			step("the policy is gone", e.table.write)
			step("a second later", e.table.sweep)
			golden.Check(t, "testdata/"+name+".golden", got.String())
		})
	}
}
