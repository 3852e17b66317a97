package announcer

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/addressvote"
)

// strangers are addresses that another machine has on the wire.
var strangers = []string{"192.0.2.9/24", "2001:db8::9/64"}

// neighbour connects the test's machine by two interfaces to a wire, on which another machine has the addresses, and returns the hardware address of that one.
func neighbour(t *testing.T) net.HardwareAddr {
	t.Helper()
	machine(t)
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bridge, err := netlink.LinkByName("eth0")
	must(err)
	must(unix.Unshare(unix.CLONE_NEWNET))
	there, err := os.Open("/proc/thread-self/ns/net")
	must(err)
	t.Cleanup(func() { there.Close() }) // the other machine ends with it
	must(unix.Setns(int(here.Fd()), unix.CLONE_NEWNET))
	second := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port2", MasterIndex: bridge.Attrs().Index}, PeerName: "eth1"}
	must(netlink.LinkAdd(second))
	must(netlink.LinkSetUp(second))
	eth1, err := netlink.LinkByName("eth1")
	must(err)
	must(netlink.LinkSetUp(eth1))
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port", MasterIndex: bridge.Attrs().Index}, PeerName: "wire", PeerNamespace: netlink.NsFd(there.Fd())}
	must(netlink.LinkAdd(pair))
	must(netlink.LinkSetUp(pair))
	must(unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	peer, err := netlink.LinkByName("wire")
	must(err)
	for _, text := range strangers {
		ip, network, _ := net.ParseCIDR(text)
		must(netlink.AddrAdd(peer, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: network.Mask}, Flags: unix.IFA_F_NODAD}))
	}
	must(netlink.LinkSetUp(peer))
	must(unix.Setns(int(here.Fd()), unix.CLONE_NEWNET))
	return peer.Attrs().HardwareAddr
}

// TestStranger: a look finds the machine that has an address, in both families, and nobody for an address that only this machine has, although
// its kernel answers on the other interface.
func TestStranger(t *testing.T) {
	mac := neighbour(t)
	for text, want := range map[string]string{"192.0.2.9": mac.String(), "2001:db8::9": mac.String(), "192.0.2.8": "", "2001:db8::8": ""} {
		at, err := placeFor(netip.MustParseAddr(text), nil)
		if err == nil {
			err = at.set()
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got, err := at.stranger(t.Context())
		if err != nil || got.String() != want {
			t.Errorf("%s: %q %v, want %q", text, got, err, want)
		}
		if took := time.Since(began); want == "" && took < probeWait {
			t.Errorf("%s: the look took %s", text, took)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if at, err := placeFor(netip.MustParseAddr("192.0.2.8"), nil); err != nil {
		t.Error(err)
	} else if _, err := at.stranger(ctx); err == nil {
		t.Error("a look goes on when coracle stops")
	}
}

// TestConflict: another machine with an address makes one warning, and the address stays.
func TestConflict(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.9")
	logger, logged := test.NewNullLogger()
	r := &running{Announcer: Announcer{Node: kube.NewOwnNode("/nonexistent", "a")}, log: logger, has: map[netip.Addr]*placed{}, found: make(chan finding)}
	p := &placed{place: place{&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}, address}, since: time.Now()}
	r.has[address] = p
	r.tally.SetServers([]string{"a"})
	vote := func(seq uint64, votes ...netip.Addr) {
		r.tally.Count("a", addressvote.Ballot{Seq: seq, Votes: votes}, time.Now())
	}
	vote(1, address)
	if r.due(time.Now()) != nil || r.due(p.since.Add(settled)) != p {
		t.Error("the first look is not when the former node has removed the address")
	}
	p.probed = p.since.Add(settled)
	if r.due(p.probed.Add(lookAgain-1)) != nil || r.due(p.probed.Add(lookAgain)) != p {
		t.Error("the next look is not a minute later")
	}
	warnings := func(f finding) int {
		r.probing = true
		r.judge(t.Context(), f)
		r.tasks.Wait()
		if r.probing || r.has[address] == nil {
			t.Error("the address is gone, or no other look follows")
		}
		return len(logged.AllEntries())
	}
	f := finding{placed: p, stranger: mac[:]}
	for title, none := range map[string]finding{"nobody": {placed: p}, "of before": {placed: &placed{place: p.place}, stranger: mac[:]}} {
		if n := warnings(none); n != 0 {
			t.Errorf("%s: %d warnings", title, n)
		}
	}
	vote(2)
	if n := warnings(f); n != 0 {
		t.Errorf("%d warnings when another node may have the address", n)
	}
	vote(3, address)
	for range 100 {
		f.stranger = append(f.stranger[:5:5], f.stranger[5]+1) // always another one
		if n := warnings(f); n != 1 {
			t.Fatalf("%d warnings", n)
		}
	}
	if text := logged.LastEntry().Message; !strings.Contains(text, "192.0.2.9") || !strings.Contains(text, "02:00:00:00:00:08") || !strings.Contains(text, "eth0") {
		t.Errorf("the warning is %s", text)
	}
	p.warned = time.Now().Add(-warnAgain)
	if n := warnings(f); n != 2 {
		t.Errorf("%d warnings after an hour", n)
	}
}

// TestConflictEvents: the Services with the address get the Event, or the node if no Service has it.
func TestConflictEvents(t *testing.T) {
	service := func(name, ip string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: ip}}}}}
	}
	for address, want := range map[string]string{"192.0.2.9": "Service tenant/one Service tenant/two ", "192.0.2.10": "Node /a "} {
		client := fake.NewClientset(service("one", "192.0.2.9"), service("two", "192.0.2.9"), service("other", "192.0.2.1"))
		a := Announcer{Node: kube.NewOwnNode("", "a")}
		a.Node.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
		if err := a.event(t.Context(), client, address, "is used"); err != nil {
			t.Fatal(err)
		}
		events, err := client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range events.Items {
			got += e.InvolvedObject.Kind + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name + " "
			if e.Reason != "AddressInUse" || e.Message != "is used" || e.Type != corev1.EventTypeWarning {
				t.Errorf("the event is %+v", e)
			}
		}
		if got != want {
			t.Errorf("%s: events about %q, want %q", address, got, want)
		}
	}
}
