package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/hosts"
)

// poolArgs gives the servers of TestLoadBalancer addresses that no node has, for Services that ask for them: those of its other cases do not.
const poolArgs = "--lb-pool=metallb,extra:manual=172.30.0.240-172.30.0.241,extra:manual=fd00:30::f0-fd00:30::f1"

// fromPool makes a Service ask for an address of that pool.
func fromPool(s *corev1.Service) {
	s.Annotations = map[string]string{"metallb.io/address-pool": "extra"}
}

// carriers are the hosts that have an address on an interface.
func carriers(all []*hosts.Host, address netip.Addr) (names []string) {
	for _, h := range all {
		if strings.Contains(h.Run("ip", "-brief", "address"), fmt.Sprintf(" %s/%d", address, address.BitLen())) {
			names = append(names, h.Name)
		}
	}
	return names
}

// awaitCarrier waits until exactly one of some hosts has an address, and returns it.
func awaitCarrier(t *testing.T, all []*hosts.Host, address netip.Addr, within time.Duration) *hosts.Host {
	t.Helper()
	var names []string
	hosts.Eventually(t, within, func() error {
		if names = carriers(all, address); len(names) != 1 {
			return fmt.Errorf("%v have %s", names, address)
		}
		return nil
	})
	return all[slices.IndexFunc(all, func(h *hosts.Host) bool { return h.Name == names[0] })]
}

// unreachable measures for how long a check fails from now on. It returns after three successes in a row that follow a failure.
func unreachable(t *testing.T, most time.Duration, check func() error) time.Duration {
	t.Helper()
	began, good, failed := time.Now(), time.Time{}, false
	for row := 0; row < 3; {
		if err := check(); err != nil {
			failed, row = true, 0
		} else if failed {
			if row++; row == 1 {
				good = time.Now()
			}
		}
		if time.Since(began) > most {
			t.Fatalf("it is not reachable again after %s, or always was (failed: %t)", most, failed)
		}
	}
	return good.Sub(began)
}

// staysReachable fails the test if a check fails for a second on end. A single failure may be a packet that was lost while kube-proxy starts.
func staysReachable(t *testing.T, d time.Duration, check func() error) {
	t.Helper()
	for good, end := time.Now(), time.Now().Add(d); time.Now().Before(end); {
		if err := check(); err == nil {
			good = time.Now()
		} else if time.Since(good) > time.Second {
			t.Fatalf("not reachable for a second: %v", err)
		}
	}
}

// testPool: a Service gets an address of a pool, which one node answers for on the wire, and for nothing else.
func (b *balancers) testPool(t *testing.T) {
	first, six := netip.MustParseAddr("172.30.0.240"), netip.MustParseAddr("fd00:30::f0")
	both := corev1.IPFamilyPolicyRequireDualStack
	asked := []string{"172.30.0.241", "fd00:30::f1"} // not the first that are free
	b.create(t, "asking", "web", func(s *corev1.Service) {
		s.Annotations, s.Spec.IPFamilyPolicy = map[string]string{"metallb.io/loadBalancerIPs": strings.Join(asked, ",")}, &both
	})
	hosts.Eventually(t, time.Minute, func() error {
		if got := addressesOf(b.get(t, "asking")); !slices.Equal(got, asked) {
			return fmt.Errorf("it asks for %v and has %v", asked, got)
		}
		return nil
	})
	b.create(t, "pooled", "web", func(s *corev1.Service) { fromPool(s); s.Spec.IPFamilyPolicy = &both })
	began := time.Now()
	hosts.Eventually(t, time.Minute, func() error {
		if got := addressesOf(b.get(t, "pooled")); !slices.Equal(got, []string{first.String(), six.String()}) {
			return fmt.Errorf("the addresses are %v", got)
		}
		return nil
	})
	for _, ip := range asked {
		expect(t, "web-", func() (string, error) { return b.outside.Get(url(netip.MustParseAddr(ip), 80, "/hostname")) })
	}
	for _, ip := range []netip.Addr{first, six} {
		expect(t, "web-", func() (string, error) { return b.outside.Get(url(ip, 80, "/hostname")) })
		at := awaitCarrier(t, b.Hosts(), ip, 10*time.Second)
		at.Run("nft", "delete", "table", "inet", "coracle-addresses") // as a firewall that flushes all when it starts; it comes back
		hosts.Eventually(t, 10*time.Second, func() error {
			out, _ := at.Try("nft", "list", "table", "inet", "coracle-addresses") // it is not there at first
			return contains("the table", out, ip.String())
		})
		t.Logf("%s answers after %s, on %s", ip, time.Since(began).Round(10*time.Millisecond), at.Name)
		for _, port := range []string{"10250", "22"} { // the kubelet listens on all addresses of the node
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if conn, err := b.outside.Dial(ctx, "tcp", net.JoinHostPort(ip.String(), port)); err == nil {
				conn.Close()
				t.Errorf("port %s of node %s is open at %s", port, at.Name, ip)
			}
			cancel()
		}
	}
	b.create(t, "third", "nobody", fromPool)
	b.says(t, "third", "NoAddress", "the pool extra has no free IPv4 address")
	b.remove(t, "asking")
	hosts.Eventually(t, time.Minute, func() error {
		return contains("addresses", strings.Join(addressesOf(b.get(t, "third")), ","), "172.30.0.241")
	})
	hosts.Eventually(t, 10*time.Second, func() error { // a Service without endpoints
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := b.outside.Dial(ctx, "tcp", "172.30.0.241:80")
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("a connection to a Service without endpoints ends with %v", err)
		}
		return nil
	})
	b.remove(t, "third")
	b.remove(t, "pooled")
	hosts.Eventually(t, 10*time.Second, func() error {
		for _, ip := range []netip.Addr{first, six, netip.MustParseAddr("172.30.0.241"), netip.MustParseAddr("fd00:30::f1")} {
			if names := carriers(b.Hosts(), ip); len(names) > 0 {
				return fmt.Errorf("%v still have %s", names, ip)
			}
		}
		return nil
	})
}

// testMetalLB: an IPAddressPool of MetalLB is a pool as soon as it exists, only for the namespaces that it names.
func (b *balancers) testMetalLB(t *testing.T) {
	b.Servers[0].Apply(manifest(t, "ipaddresspool.yaml"))
	b.Servers[0].Kubectl("wait", "--for=condition=Established", "crd/ipaddresspools.metallb.io", "--timeout=1m")
	b.Servers[0].Apply(`
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: theirs, namespace: metallb-system}
spec: {addresses: [172.30.0.245/32], autoAssign: false, serviceAllocation: {namespaces: [default]}}
---
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: others, namespace: metallb-system}
spec: {addresses: [172.30.0.246/32], serviceAllocation: {namespaces: [other]}}
`)
	b.create(t, "theirs", "web", func(s *corev1.Service) {
		s.Annotations = map[string]string{"metallb.universe.tf/loadBalancerIPs": "172.30.0.245"}
	})
	expect(t, "web-", func() (string, error) {
		return b.outside.Get(url(netip.MustParseAddr("172.30.0.245"), 80, "/hostname"))
	})
	b.create(t, "others", "web", func(s *corev1.Service) { s.Annotations = map[string]string{"metallb.io/address-pool": "others"} })
	b.says(t, "others", "NoAddress", "the pool others has no free IPv4 address")
	b.create(t, "plain", "web", nil) // no pool is for all
	b.await(t, "plain", time.Minute, b.Hosts()...)
	b.Servers[0].Kubectl("delete", "crd", "ipaddresspools.metallb.io")
	b.says(t, "theirs", "NoAddress", "172.30.0.245, but it is in no pool")
}

// testPoolLoss: another node takes over an address in three seconds when its node is cut off, which gives it up; so it does when coracle is stopped, and
// a killed process keeps it.
func (b *balancers) testPoolLoss(t *testing.T) {
	address := netip.MustParseAddr("172.30.0.240")
	b.Servers[0].Kubectl("label", "node", "server-1", corev1.LabelNodeExcludeBalancers+"=")
	t.Cleanup(func() { b.Servers[0].Kubectl("label", "node", "server-1", corev1.LabelNodeExcludeBalancers+"-") })
	b.create(t, "moving", "web", func(s *corev1.Service) { // to the pod of the node that has the address: a third of the connections would go to the lost node
		fromPool(s)
		s.Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferSameNode)
	})
	at := awaitCarrier(t, b.Agents, address, time.Minute)
	other := b.Agents[1-slices.Index(b.Agents, at)]
	answers := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		conn, err := b.outside.Dial(ctx, "tcp", netip.AddrPortFrom(address, 80).String())
		if err == nil {
			conn.Close()
		}
		return err
	}
	hosts.Eventually(t, time.Minute, answers)

	b.Links.Isolate(at)
	took := unreachable(t, time.Minute, answers)
	t.Logf("address moved from %s, which was cut off, in %.2f s", at.Name, took.Seconds())
	if took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	hosts.Eventually(t, 3*time.Second, func() error {
		if names := carriers(b.Agents, address); !slices.Equal(names, []string{other.Name}) {
			return fmt.Errorf("%v have %s", names, address)
		}
		return nil
	})
	b.Links.Heal()
	b.AwaitHealthy(time.Now(), time.Minute)
	if names := carriers(b.Agents, address); !slices.Equal(names, []string{other.Name}) {
		t.Errorf("%v have %s after all is well again", names, address)
	}

	pid, err := b.Running(other).ChildPID("node")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	staysReachable(t, 5*time.Second, answers) // longer than the kernel keeps what nobody renews
	if err := b.Running(b.Servers[0]).Stop(); err != nil {
		t.Fatal(err)
	}
	staysReachable(t, 4*time.Second, answers)
	b.Start(b.Servers[0])
	staysReachable(t, 8*time.Second, answers) // until the server gives addresses away again
	b.AwaitHealthy(time.Now(), time.Minute)
	at = awaitCarrier(t, b.Agents, address, 2*time.Second) // another one, if the killed process needed longer than votes last
	other = b.Agents[1-slices.Index(b.Agents, at)]
	if err := b.Running(at).Stop(); err != nil {
		t.Fatal(err)
	}
	hosts.Eventually(t, 2*time.Second, func() error {
		if names := carriers(b.Agents, address); !slices.Equal(names, []string{other.Name}) {
			return fmt.Errorf("%v have %s", names, address)
		}
		return nil
	})
	b.Start(at)
}

// apiAddress is the address of the API in TestThreeServers.
var apiAddress = netip.MustParseAddr("172.30.0.200")

// testVIP: one server has the address of the API. When its machine loses power, or its API server stops, another one has it.
func testVIP(t *testing.T, c *hosts.Cluster) {
	outside := hosts.New(t, c.Wire, "outside", hosts.Options{})
	answers := func() error { // with a new connection; its certificate must be valid for the address
		config, err := c.Config(outside, netip.AddrPortFrom(apiAddress, 6443).String())
		if err != nil {
			return err
		}
		config.Timeout = 300 * time.Millisecond
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	}
	at := awaitCarrier(t, c.Servers, apiAddress, 30*time.Second)
	hosts.Eventually(t, 10*time.Second, answers)
	pid, err := c.Running(at).ChildPID("control-plane")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := unreachable(t, time.Minute, answers)
	t.Logf("the API answers at %s %.2f s after its server's control plane was killed", apiAddress, took.Seconds())
	if took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	c.AwaitHealthy(time.Now(), time.Minute)
	at = awaitCarrier(t, c.Servers, apiAddress, 10*time.Second)
	at.Kill()
	took = unreachable(t, time.Minute, answers)
	t.Logf("the API answers at %s %.2f s after its server lost power", apiAddress, took.Seconds())
	if took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	c.Boot(at)
	c.AwaitHealthy(time.Now(), 2*time.Minute)
	if names := carriers(c.Servers, apiAddress); len(names) != 1 {
		t.Errorf("%v have the address", names)
	}
}
