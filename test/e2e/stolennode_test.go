package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
)

// thief is somebody who has a machine's keys.
type thief struct {
	*hosts.Host
	bin, server string
}

// kubectl sends a request as the machine's kubelet, with an object or patch as input.
func (s thief) kubectl(input string, args ...string) (string, error) {
	cmd := s.Command(s.bin, append([]string{"kubectl", "--kubeconfig=/var/lib/coracle/node/etc/kubelet.kubeconfig",
		"--server=https://" + s.server + ":6443"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// refused sends a request that the API must refuse, with a reason.
func (s thief) refused(t *testing.T, input, reason string, args ...string) {
	t.Helper()
	if out, err := s.kubectl(input, args...); err == nil || !strings.Contains(out, reason) {
		t.Errorf("kubectl %s < %q: %v, want %q: %s", strings.Join(args, " "), input, err, reason, out)
	}
}

// testStolenNode: what a machine that joined can write about itself gives it nothing of the others.
func testStolenNode(t *testing.T, c *hosts.Cluster) {
	h := c.NewHost("stolen")
	server := c.Servers[0]
	s := h.StartAgent("--server=https://"+server.IP.String()+":6443", "--token-file=/etc/coracle/token")
	h.Coracle("wait", "--timeout", "3m")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	stolen := thief{h, hosts.Bin(t), server.IP.String()}
	patch := func(patch, reason string, args ...string) {
		t.Helper()
		stolen.refused(t, "", reason, append([]string{"patch", "node", "stolen", "--type=merge", "-p", patch}, args...)...)
	}
	patch(`{"spec":{"unschedulable":true}}`, "cannot change its own spec")
	patch(`{"metadata":{"finalizers":["example.com/forever"]}}`, "cannot set finalizers")

	server.Kubectl("delete", "node", "stolen")
	for _, subnet := range []string{"10.42.0.128/25", "198.51.100.0/24"} {
		stolen.refused(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stolen"}, "spec": {"podCIDR": %q, "podCIDRs": [%[1]q]}}`, subnet),
			"the control plane assigns spec.podCIDR", "create", "-f", "-")
	}
}
