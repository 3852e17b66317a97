package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
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
	squatter := squat(t, c, "squatter", h.IP.String())
	s := h.StartAgent("--server=https://"+server.IP.String()+":6443", "--token-file=/etc/coracle/token")
	h.Coracle("wait", "--timeout", "3m")
	squatter.says(t, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: h.IP.String()})
	if got := server.Kubectl("get", "node", "squatter", "-o", "jsonpath={.status.addresses[*].address}"); got != "" {
		t.Errorf("who only claims an address keeps %s", got)
	}
	squatter.says(t, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00::1%x"})
	if got := server.Kubectl("get", "node", "squatter", "-o", "jsonpath={.status.addresses[*].address}"); got != "" {
		t.Errorf("a node has the address %s", got)
	}
	squatter.connects(t)
	server.Coracle("node", "remove", "--force", "squatter")
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

	patch(`{"metadata":{"labels":{"svccontroller.k3s.cattle.io/enablelb":"true"}}}`, "cannot change its label")
	patch(`{"metadata":{"annotations":{"coracle.io/allowed-addresses":"203.0.113.66"}}}`, "is the control plane's and administrators' to set")
	patch(`{"metadata":{"labels":{"kubernetes.io/hostname":"agent-1"}}}`, "cannot change its label")
	neighbour := server.Kubectl("get", "node", "agent-1", "-o", `jsonpath={.metadata.annotations.flannel\.alpha\.coreos\.com/backend-data}`)
	neighbour = strings.NewReplacer(`":"`, `":"`, `":`, `":`, ":", "-").Replace(neighbour) // of the MAC address only
	body, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"flannel.alpha.coreos.com/backend-data": neighbour}}})
	patch(string(body), "node agent-1 has")
	for _, address := range []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "203.0.113.66"}, {Type: corev1.NodeExternalIP, Address: h.IP.String()},
		{Type: corev1.NodeInternalIP, Address: server.IP.String()}} {
		stolen.reports(t, func(n *corev1.Node) { n.Status.Addresses = append(n.Status.Addresses, address) })
		stolen.reports(t, func(n *corev1.Node) { n.Annotations["node.coracle.io/external-ip"] = address.Address })
	}
	if got := server.Kubectl("get", "node", "stolen", "-o", "jsonpath={.status.addresses[*].address} {.metadata.annotations.node\\.coracle\\.io/external-ip}"); got != h.IP.String()+" stolen none" {
		t.Errorf("it gave itself the addresses %s", got)
	}

	stolen.makesPod(t, server)

	server.Kubectl("-n", "kube-system", "create", "role", "leases", "--verb=*", "--resource=leases.coordination.k8s.io")
	server.Kubectl("-n", "kube-system", "create", "rolebinding", "leases", "--role=leases", "--user=tenant")
	if out, err := server.TryCoracle("kubectl", "--as=tenant", "-n", "kube-system", "delete", "lease", "coracle-node-stolen"); err == nil || !strings.Contains(err.Error(), "only those who may delete Nodes") {
		t.Errorf("a writer of Leases removes a claim: %s %v", out, err)
	}

	server.Kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant")
	for _, port := range []string{"6443", "10250", "2380"} { // at the address of a machine that joins later
		service := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"later"},"spec":{"externalIPs":["172.30.200.1"],"ports":[{"port":` + port + `}]}}`
		cmd := server.Command(stolen.bin, "kubectl", "--as=tenant", "create", "-f", "-")
		cmd.Stdin = strings.NewReader(service)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "would be held by coracle") {
			t.Errorf("a tenant takes port %s of an address that no node has yet: %s %v", port, out, err)
		}
	}

	server.Kubectl("delete", "node", "stolen")
	for _, subnet := range []string{"10.42.0.128/25", "198.51.100.0/24"} {
		stolen.refused(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stolen"}, "spec": {"podCIDR": %q, "podCIDRs": [%[1]q]}}`, subnet),
			"the control plane assigns spec.podCIDR", "create", "-f", "-")
	}
	server.Kubectl("-n", "kube-system", "delete", "lease", "coracle-node-stolen", "--ignore-not-found")
	stolen.refused(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stolen"}}`, "no machine has joined as node stolen", "create", "-f", "-")
}

// makesPod makes a pod that a Service would choose, with an address of its choice.
func (s thief) makesPod(t *testing.T, server *hosts.Host) {
	t.Helper()
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "mirror-stolen", Namespace: "default"}}
	pod.Labels = map[string]string{"app": "web"}
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x", "kubernetes.io/config.hash": "x", "kubernetes.io/config.source": "file"}
	uid := server.Kubectl("get", "node", "stolen", "-o", "jsonpath={.metadata.uid}")
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "stolen", UID: types.UID(uid), Controller: ptr.To(true)}}
	pod.Spec = corev1.PodSpec{NodeName: "stolen", Containers: []corev1.Container{{Name: "c", Image: "none"}}, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	text, _ := json.Marshal(pod)
	out, err := s.kubectl(string(text), "create", "-f", "-", "-o", "json")
	pod = corev1.Pod{}
	if i := strings.Index(out, "{"); err != nil || i < 0 || json.NewDecoder(strings.NewReader(out[i:])).Decode(&pod) != nil {
		t.Fatalf("making a static pod's mirror: %v: %s", err, out)
	}
	pod.ResourceVersion = "" // others may write its status meanwhile
	status := func() []string {
		text, _ := json.Marshal(pod)
		return []string{string(text), "replace", "--raw=/api/v1/namespaces/default/pods/mirror-stolen/status", "-f", "-"}
	}
	pod.Finalizers = []string{"example.com/stay"}
	s.refused(t, status()[0], "cannot set or remove finalizers", status()[1:]...)
	pod.Finalizers, pod.Status.PodIP, pod.Status.PodIPs = nil, server.IP.String(), []corev1.PodIP{{IP: server.IP.String()}}
	if out, err := s.kubectl(status()[0], status()[1:]...); err != nil {
		t.Errorf("reporting the pod's status: %v: %s", err, out)
	}
	if got := server.Kubectl("get", "pod", "mirror-stolen", "-o", "jsonpath={.metadata.labels}{.status.podIPs}"); got != "" {
		t.Errorf("a stolen node's pod has %s", got)
	}
}

// squat joins as a machine that says it has an address, and makes a Node with it.
func squat(t *testing.T, c *hosts.Cluster, name, address string) *copiedKeys {
	t.Helper()
	server := c.Servers[0]
	client, err := c.Client(server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	x := &copiedKeys{name: name, from: server, joined: newMachine(t, name, "system:coracle:node:"+name, "system:coracle:nodes")}
	request := x.joined.request()
	request.Addresses = []netip.Addr{netip.MustParseAddr(address)}
	token := strings.TrimSpace(server.Coracle("token", "create"))
	code, text := x.try(t.Context(), server, nil, bearer(t, token), http.MethodPost, join.PathAgent, request)
	var response join.Response
	if err := json.Unmarshal([]byte(text), &response); err != nil || code != http.StatusOK {
		t.Fatalf("joining as %s: %d %s", name, code, text)
	}
	x.node = pairOf(response.Cert, x.joined)
	x.kubelet = x.kubeletPair(t, client, &x.node)
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if code, text := x.try(t.Context(), server, &x.kubelet, "", http.MethodPost, "/api/v1/nodes", node); code != http.StatusCreated {
		t.Fatalf("making the Node: %d %s", code, text)
	}
	x.says(t, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	if got := server.Kubectl("get", "node", name, "-o", "jsonpath={.status.addresses[*].address}"); got != address {
		t.Errorf("node %s has the addresses %q", name, got)
	}
	return x
}

// connects keeps many connections, of which the server must close some.
func (x *copiedKeys) connects(t *testing.T) {
	t.Helper()
	const opened, limit = 300, 200
	ended := make(chan error, opened)
	for range opened {
		conn, err := x.from.Dial(t.Context(), "tcp", net.JoinHostPort(x.from.IP.String(), "6443"))
		if err != nil {
			t.Fatal(err)
		}
		known := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{x.kubelet}})
		defer known.Close()
		if _, err := io.WriteString(known, "GET /version HTTP/1.1\r\nHost: api\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := io.Copy(io.Discard, known)
			ended <- err
		}()
	}
	for i := range opened - limit {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatalf("the server has closed %d of %d connections of a node", i, opened)
		}
	}
}

// reports changes the status of the machine's Node.
func (s thief) reports(t *testing.T, change func(*corev1.Node)) {
	t.Helper()
	// The control plane taints a Node whose kubelet is silent, perhaps between the two requests.
	hosts.Eventually(t, 30*time.Second, func() error {
		out, err := s.kubectl("", "get", "node", "stolen", "-o", "json")
		var node corev1.Node
		if err != nil || json.Unmarshal([]byte(out), &node) != nil {
			return fmt.Errorf("its Node: %v: %s", err, out)
		}
		change(&node)
		data, err := json.Marshal(node)
		if err != nil {
			return err
		}
		if out, err := s.kubectl(string(data), "replace", "--raw=/api/v1/nodes/stolen/status", "-f", "-"); err != nil {
			return fmt.Errorf("reporting the status: %v: %s", err, out)
		}
		return nil
	})
}
