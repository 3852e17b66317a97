package e2e

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestResetAfterFaults resets a host after several kinds of failures: each time it must be as before coracle, and a new
// start must work.
func TestResetAfterFaults(t *testing.T) {
	slots.Take(t)
	isolated := "" // address of a pod that a policy isolated before the fault
	faults := []struct {
		name    string
		make    func(*testing.T, *hosts.Host, *hosts.Server)
		unknown []string // parts of the inventory that cannot be restored
	}{
		{"killed front", func(t *testing.T, _ *hosts.Host, s *hosts.Server) {
			signal(t, syscall.SIGKILL, s.FrontPID())
			_ = s.Wait(waitForEnd)
		}, nil},
		{"hung processes", func(t *testing.T, _ *hosts.Host, s *hosts.Server) {
			for _, role := range []string{"control-plane", "node"} {
				pid, err := s.ChildPID(role)
				if err != nil {
					t.Fatal(err)
				}
				signal(t, syscall.SIGSTOP, pid)
			}
		}, nil},
		{"damaged payload", func(t *testing.T, h *hosts.Host, s *hosts.Server) {
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			h.Run("sh", "-c", "for f in runc nft coracle-core containerd-shim-runc-v2; do rm -f /var/lib/coracle/data/*/$f; done")
		}, nil},
		{"damaged ledger", func(t *testing.T, h *hosts.Host, s *hosts.Server) {
			isolated = isolatePod(t, h)
			h.Run("sh", "-c", "echo '{' > /var/lib/coracle/ledger.json")
		}, []string{"mounts", "files", "directories"}}, // only the ledger knew of the propagation and of empty directories
		{"reboot", func(_ *testing.T, h *hosts.Host, _ *hosts.Server) {
			h.Kill()
			h.Boot()
		}, []string{"links", "addresses", "nft tables", "mounts", "files", "directories"}}, // other programs lost their objects in the kernel and in /run
	}
	h := newFreshHost(t, "solo")
	h.Run("sh", "-c", "rm -rf /var/lib/coracle/* /etc/coracle /etc/cni /var/lib/cni /var/log/pods; nft add table inet foreign; ip link add foreign0 type bridge; mkdir -p /run/netns")
	before := takeInventory(h)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			h.For(t).CopyImages()
			s := h.For(t).Start()
			waitReady(t, h.For(t))
			startSleepers(t, h.For(t))
			f.make(t, h, s)

			h := h.For(t)
			out, err := h.TryCoracle("reset", "--yes")
			t.Logf("reset says:\n%s", out)
			if (err != nil) != (f.name == "damaged ledger") {
				t.Errorf("reset: %v", err)
			}
			if out := h.Coracle("reset", "--dry-run"); !strings.Contains(out, "nothing of coracle") {
				t.Errorf("left after reset:\n%s", out)
			}
			if isolated != "" {
				checkForwarding(t, h, isolated)
				isolated = ""
			}
			compareInventory(t, h, before, f.unknown...)
		})
	}
}

// isolatePod starts a pod and a network policy that denies all its traffic. It returns the pod's address.
func isolatePod(t *testing.T, h *hosts.Host) string {
	t.Helper()
	h.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: isolated, labels: {app: isolated}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: coracle.test/busybox:1, command: [sleep, '36000']}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: isolated}
spec: {podSelector: {matchLabels: {app: isolated}}}
`)
	h.Kubectl("wait", "--for=condition=Ready", "pod/isolated", "--timeout=3m")
	ip := h.Kubectl("get", "pod", "isolated", "-o", "jsonpath={.status.podIP}")
	await(t, "a policy in force", func(context.Context) bool {
		rules, err := h.Try("nft", "list", "map", "inet", "coracle-policy", "ingress4")
		return err == nil && strings.Contains(rules, ip)
	})
	return ip
}

// checkForwarding fails the test unless the host forwards packets to a former pod's address, now in another network.
func checkForwarding(t *testing.T, h *hosts.Host, ip string) {
	t.Helper()
	out, err := h.Try("sh", "-c", `
for n in client target; do unshare --net sh -c 'echo $$ > /tmp/'$n'; exec sleep 600' & done
until [ -s /tmp/client ] && [ -s /tmp/target ]; do sleep 0.1; done
c=$(cat /tmp/client) t=$(cat /tmp/target) was=$(cat /proc/sys/net/ipv4/ip_forward)
echo 1 > /proc/sys/net/ipv4/ip_forward
ip link add client0 type veth peer name eth0 netns $c && ip addr add 192.0.2.1/24 dev client0 && ip link set client0 up
ip link add target0 type veth peer name eth0 netns $t && ip addr add 198.51.100.1/24 dev target0 && ip link set target0 up
ip route add $0 dev target0
nsenter --net=/proc/$c/ns/net sh -c 'ip addr add 192.0.2.2/24 dev eth0; ip link set eth0 up; ip route add default via 192.0.2.1'
nsenter --net=/proc/$t/ns/net sh -c 'ip addr add '$0'/32 dev eth0; ip link set eth0 up; ip route add 198.51.100.1 dev eth0; ip route add default via 198.51.100.1'
nsenter --net=/proc/$c/ns/net busybox ping -c 1 -W 2 $0; result=$?
kill -9 $c $t; ip link del client0; ip link del target0; echo $was > /proc/sys/net/ipv4/ip_forward; rm /tmp/client /tmp/target
exit $result`, ip)
	if err != nil {
		t.Errorf("packets to %s are dropped after the reset: %v\n%s", ip, err, out)
	}
}

// TestResetOfNothing resets a host on which coracle never ran.
func TestResetOfNothing(t *testing.T) {
	slots.Take(t)
	h := newFreshHost(t, "solo")
	h.Run("sh", "-c", "rm -rf /var/lib/coracle/*")
	for _, args := range [][]string{{"reset", "--dry-run"}, {"reset", "--yes"}, {"reset"}} {
		if out := h.Coracle(args...); !strings.Contains(out, "nothing of coracle") {
			t.Errorf("%s says %q", fmt.Sprint(args), out)
		}
	}
}

// waitForEnd limits the time until a killed server has ended.
const waitForEnd = 40 * time.Second

func signal(t *testing.T, sig syscall.Signal, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}
