package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// testNewAddress starts a server with another node IP than before, as after the end of a DHCP lease.
func testNewAddress(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	startSleepers(t, h)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	h.SetIP(netip.MustParseAddr("172.30.0.77"))
	s = h.Start()
	waitReady(t, h)
	hosts.Eventually(t, 3*time.Minute, func() error {
		return contains("the node's addresses", h.Kubectl("get", "node", "solo", "-o", "jsonpath={.status.addresses}"), "172.30.0.77")
	})
	hosts.Eventually(t, 2*time.Minute, func() error {
		return contains("the API's endpoint", h.Kubectl("get", "endpointslice", "kubernetes", "-o", "jsonpath={.endpoints}"), "172.30.0.77")
	})
	pod := h.Kubectl("get", "pods", "-l", "app=sleepers", "-o", "jsonpath={.items[0].metadata.name}")
	hosts.Eventually(t, 2*time.Minute, func() error {
		out, err := h.TryCoracle("kubectl", "exec", pod, "--", "nslookup", "kubernetes.default.svc.cluster.local")
		if err != nil {
			return err
		}
		return contains("nslookup", out, "10.43.0.1")
	})
	// The certificate must be valid for the new address.
	h.Coracle("kubectl", "--server", "https://172.30.0.77:6443", "get", "--raw", "/readyz")
	return s
}

// testNewHostname starts a server with another host name: the result must be a new node or a clear error.
func testNewHostname(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	h.Run("hostname", "renamed")
	s = h.Start()
	waitReady(t, h)
	h.Kubectl("wait", "--for=condition=Ready", "node/renamed", "--timeout=3m")
	if out := h.Kubectl("get", "nodes", "-o", "name"); out != "node/renamed" && out != "node/renamed\n" {
		t.Errorf("the nodes are %s", out)
	}
	startSleepers(t, h)
	return s
}

// restarted stops a server and starts another one with these arguments.
func restarted(t *testing.T, h *hosts.Host, s *hosts.Server, args ...string) *hosts.Server {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = h.Start(args...)
	waitReady(t, h)
	return s
}

// testNewExternalIP starts a server without an external address, with one, with another one and without again.
func testNewExternalIP(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	external := func(want string) {
		t.Helper()
		hosts.Eventually(t, 2*time.Minute, func() error {
			got := h.Kubectl("get", "node", "solo", "-o", `jsonpath={.status.addresses[?(@.type=="ExternalIP")].address}/{.status.addresses[?(@.type=="InternalIP")].address}`)
			if got = strings.TrimSpace(got); got != want+"/172.30.0.2" {
				return fmt.Errorf("the addresses are %s", got)
			}
			return nil
		})
	}
	external("")
	s = restarted(t, h, s, "--node-external-ip=192.0.2.7")
	external("192.0.2.7")
	expect(t, "192.0.2.7", func() (string, error) { // the kubelet requests another certificate
		return h.Try("sh", "-c", "echo | openssl s_client -connect 127.0.0.1:10250 2>/dev/null | openssl x509 -noout -ext subjectAltName")
	})
	s = restarted(t, h, s, "--node-external-ip=192.0.2.8")
	external("192.0.2.8")
	s = restarted(t, h, s)
	external("")
	hosts.Eventually(t, time.Minute, func() error {
		node := h.Kubectl("get", "node", "solo", "-o", "json")
		for _, left := range []string{"external-ip", "provided-node-ip", "uninitialized"} {
			if strings.Contains(node, left) {
				return fmt.Errorf("the node still has %s", left)
			}
		}
		return nil
	})
	startSleepers(t, h)
	return s
}

// TestLoopbackOnly runs on a host without a network.
func TestLoopbackOnly(t *testing.T) {
	slots.Take(t)
	h := newLonelyHost(t)
	h.Start()
	waitReady(t, h)
	startSleepers(t, h)
	pod := h.Kubectl("get", "pods", "-l", "app=sleepers", "-o", "jsonpath={.items[0].metadata.name}")
	expect(t, "10.43.0.1", func() (string, error) {
		return h.TryCoracle("kubectl", "exec", pod, "--", "nslookup", "kubernetes.default.svc.cluster.local")
	})
}

// testStartAfterLostData starts after the data directory was removed by hand instead of by reset.
func testStartAfterLostData(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	h.Run("sh", "-c", "rm -rf /var/lib/coracle/*")
	h.CopyImages()
	s = h.Start()
	waitReady(t, h)
	startSleepers(t, h)
	return s
}

// testStartAfterReset resets a cluster and makes another one on the same host.
func testStartAfterReset(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	startSleepers(t, h)
	h.Kubectl("create", "configmap", "old")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	h.Coracle("reset", "--yes")
	h.CopyImages()
	s = h.Start()
	waitReady(t, h)
	if out, err := h.TryCoracle("kubectl", "get", "configmap", "old"); err == nil {
		t.Errorf("the old cluster's data is still there: %s", out)
	}
	startSleepers(t, h)
	return s
}
