package networkpolicy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/knftables"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What TestScale measures with.
const (
	scalePods, scaleHere, scalePolicies, scaleNamespaces = 1000, 110, 200, 20
	scaleChanges                                         = 300
	flood, rounds                                        = 500 * time.Millisecond, 5
)

// TestScale measures the engine and the real kernel with 1000 pods, 110 of them here, and 200 policies, in a network
// namespace of its own: a full sync, changes, and packets between two pods of a bridge. It prints a line for each figure.
func TestScale(t *testing.T) {
	if os.Getenv("CORACLE_BENCH") == "" {
		t.Skip("CORACLE_BENCH is not set: it measures, it proves nothing")
	}
	if _, err := exec.LookPath("nft"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and nft")
	}
	b := newScaleBed(t)
	kernel, err := knftables.New(knftables.InetFamily, tableName) // nft runs in this thread's network
	if err != nil {
		t.Fatal(err)
	}
	write := func(fill func(*knftables.Transaction)) time.Duration {
		began := time.Now()
		tx := kernel.NewTransaction()
		fill(tx)
		if tx.NumOperations() > 0 {
			if err := kernel.Run(context.Background(), tx); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(began)
	}
	figure := func(name, format string, args ...any) {
		fmt.Printf("network policy: %-44s %s\n", name, fmt.Sprintf(format, args...))
	}
	figure("packets per CPU second, nothing", "%.0f", b.flood(t))
	tracked := exec.Command("nft", "add table inet other; add chain inet other c { type filter hook prerouting priority 0; }; add rule inet other c ct state invalid drop")
	if out, err := tracked.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	figure("packets per CPU second, conntrack as everywhere", "%.0f", b.flood(t))

	r := rand.New(rand.NewPCG(1, 1))
	e, pods := scaleCluster(r)
	all := func(tx *knftables.Transaction) { e.table.writeAll(tx, network{dual, "cni0"}) }
	write(all)
	figure("packets per CPU second, table without a policy", "%.0f", b.flood(t))

	ours, theirs := usage(unix.RUSAGE_SELF), usage(unix.RUSAGE_CHILDREN)
	began := time.Now()
	for i := range scalePolicies {
		if err := e.setPolicy(scalePolicy(r, i)); err != nil {
			t.Fatal(err)
		}
	}
	computed := time.Since(began)
	write(all)
	figure("full sync", "%s, of it engine %s; CPU %s and nft's %s", time.Since(began).Round(time.Millisecond), computed.Round(time.Millisecond),
		(usage(unix.RUSAGE_SELF) - ours).Round(time.Millisecond), (usage(unix.RUSAGE_CHILDREN) - theirs).Round(time.Millisecond))
	elements := 0
	for _, s := range e.table.sets {
		elements += len(s.elems)
	}
	figure("table", "%d chains, %d sets, %d elements", len(e.table.chains), len(e.table.sets), elements)

	for _, c := range []struct {
		name   string
		change func(i int)
	}{
		{"pod's labels", func(i int) {
			p := *pods[r.IntN(len(pods))]
			p.Labels = map[string]string{"app": fmt.Sprint("app-", r.IntN(10))}
			e.setPod(&p)
		}},
		{"policy", func(i int) {
			if err := e.setPolicy(scalePolicy(r, r.IntN(scalePolicies))); err != nil {
				t.Fatal(err)
			}
		}},
		{"namespace's labels", func(i int) {
			e.setNamespace(fmt.Sprint("ns-", r.IntN(scaleNamespaces)), map[string]string{"team": fmt.Sprint("team-", r.IntN(4))})
		}},
	} {
		var took []time.Duration
		for i := range scaleChanges {
			began := time.Now()
			c.change(i)
			write(e.table.write)
			took = append(took, time.Since(began))
			write(e.table.sweep) // not measured: it comes a second later
		}
		slices.Sort(took)
		figure("change of a "+c.name+" in the kernel", "p50 %s, p99 %s", took[len(took)/2].Round(100*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond))
	}
	figure("packets per CPU second, 200 policies, pods not selected", "%.0f", b.flood(t))
	for i, name := range []string{"10.42.0.250", "10.42.0.251"} {
		p := podOf("ns-0", fmt.Sprint("flood-", i), map[string]string{"app": "app-1"}, true, nil)
		e.attach(at(p, name))
		e.setPod(p)
	}
	allow := scalePolicy(r, 0)
	allow.Name, allow.Spec = "allow-flood", networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
	}
	if err := e.setPolicy(allow); err != nil {
		t.Fatal(err)
	}
	write(e.table.write)
	figure("packets per CPU second, 200 policies, pods selected", "%.0f", b.flood(t))
	figure("rules for these pods", "%d out, %d in", len(e.sandboxes["sandbox-flood-0"].profile[egress].rules), len(e.sandboxes["sandbox-flood-1"].profile[ingress].rules))
}

func usage(who int) time.Duration {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// scaleCluster is a cluster without policies.
func scaleCluster(r *rand.Rand) (*engine, []*pod) {
	e := newEngine([]family{4, 6})
	for i := range scaleNamespaces {
		e.setNamespace(fmt.Sprint("ns-", i), map[string]string{"team": fmt.Sprint("team-", i%4)})
	}
	var pods []*pod
	for i := range scalePods {
		v4, v6 := fmt.Sprintf("10.42.%d.%d", i/200, i%200+2), fmt.Sprintf("fd42:0:0:%x::%x", i/200, i%200+2)
		p := podOf(fmt.Sprint("ns-", i%scaleNamespaces), fmt.Sprint("pod-", i), map[string]string{"app": fmt.Sprint("app-", r.IntN(10)), "pod": fmt.Sprint(i)},
			i < scaleHere, []namedPort{{portName{"web", "tcp"}, 8080}}, v4, v6)
		if p.local {
			e.attach(at(p, v4, v6))
		}
		e.setPod(p)
		pods = append(pods, p)
	}
	return e, pods
}

// scalePolicy is one of ten in each namespace: some pods, from a few kinds of peers, on a few ports.
func scalePolicy(r *rand.Rand, i int) *networkingv1.NetworkPolicy {
	app := func() *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", r.IntN(10))}}
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns-", i%scaleNamespaces), Name: fmt.Sprint("policy-", i)}}
	p.Spec = networkingv1.NetworkPolicySpec{
		PodSelector: *app(), PolicyTypes: []networkingv1.PolicyType{"Ingress", "Egress"},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{PodSelector: app()}, {PodSelector: app(), NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"team": fmt.Sprint("team-", r.IntN(4))}}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}, {Port: new(intstr.FromString("web"))}},
		}},
		Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: app()},
			{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8", "192.168.0.0/16"}}}}}},
	}
	return p
}

// scaleBed is a network namespace with a bridge and two more namespaces on it, as two pods.
type scaleBed struct {
	from, to *net.UDPConn
	counter  func() uint64
}

// newScaleBed takes the test's thread into the namespace.
func newScaleBed(t *testing.T) *scaleBed {
	t.Helper()
	runtime.LockOSThread() // the thread ends with the test
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Unshare(unix.CLONE_NEWNET))
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	must(netlink.LinkAdd(bridge))
	must(netlink.LinkSetUp(bridge))
	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		if err := os.WriteFile("/proc/sys/net/bridge/"+name, []byte("1"), 0o644); err != nil {
			t.Skipf("packets between pods of a bridge do not pass nft here: %v", err)
		}
	}
	b := &scaleBed{}
	for i, address := range []string{"10.42.0.250/16", "10.42.0.251/16"} {
		name := fmt.Sprint("veth", i)
		must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: fmt.Sprint("pod", i)}))
		outer, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetMaster(outer, bridge))
		must(netlink.LinkSetUp(outer))
		conn := inNamespace(t, fmt.Sprint("pod", i), address)
		if i == 0 {
			b.from = conn
		} else {
			b.to = conn
			b.counter = func() uint64 {
				link, err := netlink.LinkByName(name)
				must(err)
				return link.Attrs().Statistics.TxPackets
			}
		}
	}
	return b
}

// inNamespace moves a link into a namespace of its own and returns a socket there.
func inNamespace(t *testing.T, name, address string) *net.UDPConn {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	ready, moved := make(chan int), make(chan struct{})
	type result struct {
		conn *net.UDPConn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- result{nil, err}
			close(ready)
			return
		}
		ready <- unix.Gettid()
		<-moved
		conn, err := func() (*net.UDPConn, error) {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return nil, err
			}
			addr, err := netlink.ParseAddr(address)
			if err != nil {
				return nil, err
			}
			if err := netlink.AddrAdd(link, addr); err != nil {
				return nil, err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return nil, err
			}
			return net.ListenUDP("udp4", &net.UDPAddr{IP: addr.IP, Port: 9000})
		}()
		done <- result{conn, err}
		select {} // the namespace lives with the thread
	}()
	if tid, ok := <-ready; ok {
		if err := netlink.LinkSetNsPid(link, tid); err != nil {
			t.Fatal(err)
		}
		close(moved)
	}
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.conn
}

// flood returns how many packets of one flow reach the other pod in a second of CPU time: they travel in the thread that
// sends them, so that it matters little what else the machine does. It is the best of several rounds.
func (b *scaleBed) flood(t *testing.T) (best float64) {
	t.Helper()
	to := netip.MustParseAddrPort("10.42.0.251:9000")
	for range rounds {
		spent, before := usage(unix.RUSAGE_THREAD), b.counter()
		for began := time.Now(); time.Since(began) < flood; {
			for range 100 {
				if _, err := b.from.WriteToUDPAddrPort([]byte("x"), to); err != nil {
					t.Fatal(err)
				}
			}
		}
		best = max(best, float64(b.counter()-before)/(usage(unix.RUSAGE_THREAD)-spent).Seconds())
	}
	return best
}
