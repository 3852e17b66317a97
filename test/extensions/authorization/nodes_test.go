package authorization

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// kubelet is somebody who has a node's keys.
type kubelet struct {
	cluster.Space
	node string
}

// try sends a request as the node's kubelet. In the arguments, MINE and OTHER are the names of its node and of another.
func (k kubelet) try(t *testing.T, input, args string) (string, error) {
	t.Helper()
	names := strings.NewReplacer("MINE", k.node, "OTHER", k.Nodes[0].Name, "NAMESPACE", k.Namespace)
	cmd := k.Command(t.Context(), os.Getenv("CORACLE"), append([]string{"up", "exec", k.Name, k.node, "coracle", "kubectl",
		"--kubeconfig=/var/lib/coracle/node/etc/kubelet.kubeconfig", "--namespace=" + k.Namespace}, strings.Fields(names.Replace(args))...)...)
	cmd.Stdin = strings.NewReader(names.Replace(input))
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// pod is a pod that a kubelet would like to have, bound to a node or not.
const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "%s"%s}, "spec": {%s "containers": [{"name": "main", "image": "none"}]}}`

// nodes tries with the keys of one node what would lead to others: it is a trampoline if any of these works.
func nodes(t *testing.T, s cluster.Space) {
	k := kubelet{s, s.Nodes[1].Name}
	data, err := os.ReadFile("pods.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("$(MINE)", k.node, "$(OTHER)", k.Nodes[0].Name).Replace(string(data))
	cmd := s.Command(t.Context(), "kubectl", "apply", "--namespace", s.Namespace, "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	for _, allowed := range []string{
		"get secret mine", "get pods --field-selector=spec.nodeName=MINE", "get node MINE", "get services", "create token default --bound-object-kind=Pod --bound-object-name=mine --bound-object-uid=" +
			s.Kubectl(t, "get", "pod", "mine", "-o", "jsonpath={.metadata.uid}"),
	} {
		cluster.Eventually(t, func() error { // the authorizer learns of pods by a watch
			out, err := k.try(t, "", allowed)
			if err != nil {
				err = fmt.Errorf("kubectl %s, which a kubelet needs: %w: %s", allowed, err, out)
			}
			return err
		})
	}

	mirror := `, "annotations": {"kubernetes.io/config.mirror": "x"}`
	uid := s.Kubectl(t, "get", "pod", "theirs", "-o", "jsonpath={.metadata.uid}")
	for _, attack := range []struct{ what, args, input, reason string }{
		{"another node's Secret", "get secret theirs", "", "no relationship found between node"},
		{"all Secrets", "get secrets", "", "cannot list resource"},
		{"all pods", "get pods", "", "can only list/watch pods with spec.nodeName field selector"},
		{"another node's pods", "get pods --field-selector=spec.nodeName=OTHER", "", "can only list/watch pods with spec.nodeName field selector"},
		{"another node's pod", "get pod theirs", "", "no relationship found between node"},
		{"another node", "get node OTHER", "", "node 'MINE' cannot read 'OTHER', only its own Node object"},
		{"a token of another node's account", "create token theirs --bound-object-kind=Pod --bound-object-name=theirs --bound-object-uid=" + uid, "", "no relationship found between node"},
		{"a token of no pod", "create token default", "", "node requested token not bound to a pod"},
		{"a pod of its own making", "create -f -", fmt.Sprintf(pod, "made", "", ""), "pod does not have \"kubernetes.io/config.mirror\" annotation"},
		{"a mirror pod on another node", "create -f -", fmt.Sprintf(pod, "made", mirror, `"nodeName": "OTHER", `), "can only create pods with spec.nodeName set to itself"},
		{"a mirror pod with a Secret", "create -f -", fmt.Sprintf(pod, "made", mirror,
			`"nodeName": "MINE", "volumes": [{"name": "s", "secret": {"secretName": "theirs"}}],`), "a mirror pod may not reference secrets"},
		{"binding a pod to itself", "create --raw /api/v1/namespaces/NAMESPACE/pods/nobodys/binding -f -",
			`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "nobodys"}, "target": {"kind": "Node", "name": "MINE"}}`, "cannot create resource"},
		{"the state of another node's pod", "replace --raw /api/v1/namespaces/NAMESPACE/pods/theirs/status -f -", fmt.Sprintf(pod, "theirs", "", `"nodeName": "MINE", `),
			"can only update pod status for pods with spec.nodeName set to itself"},
		{"deleting another node's pod", "delete pod theirs --wait=false", "", "can only delete pods with spec.nodeName set to itself"},
		{"evicting another node's pod", "create --raw /api/v1/namespaces/NAMESPACE/pods/theirs/eviction -f -",
			`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "theirs"}}`, "forbidden"},
		{"labels of another node", "label node OTHER a=b", "", "forbidden"},
		{"a protected label", `patch node MINE -p {"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`, "", "is not allowed to modify labels"},
		{"taking off its taints", `patch node MINE -p {"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`, "", "is not allowed to modify taints"},
		{"acting as an administrator", "get secrets --as=admin --as-group=system:masters", "", "cannot impersonate-on:user-info"},
		{"a role", "create clusterrolebinding mine --clusterrole=cluster-admin --user=system:node:MINE", "", "cannot create resource"},
		{"another kubelet's API", "get --raw /api/v1/nodes/OTHER/proxy/pods", "", "forbidden"},
	} {
		names := strings.NewReplacer("MINE", k.node, "OTHER", k.Nodes[0].Name)
		out, err := k.try(t, attack.input, attack.args)
		if err == nil || !strings.Contains(out, names.Replace(attack.reason)) {
			t.Errorf("%s: %v, want %q: %s", attack.what, err, attack.reason, out)
		}
	}
	if got := s.Kubectl(t, "get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name}={.spec.nodeName} {end}"); got != fmt.Sprintf("mine=%s nobodys= theirs=%s", k.node, k.Nodes[0].Name) {
		t.Errorf("after that there are the pods %s", got)
	}
	s.Kubectl(t, "delete", "pods", "--all", "--force", "--grace-period=0")
}

// podCertificates runs a pod with a certificate: its kubelet asks for it, the test signs it. Another node cannot ask for one in the pod's name.
func podCertificates(t *testing.T, s cluster.Space) {
	s.Kubectl(t, "apply", "-f", "identity.yaml")
	authority, err := NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	requests := s.Client.CertificatesV1().PodCertificateRequests(s.Namespace)
	var asked certificatesv1.PodCertificateRequest
	cluster.Eventually(t, func() error {
		all, err := requests.List(t.Context(), metav1.ListOptions{})
		if err == nil && len(all.Items) == 0 {
			err = errors.New("the kubelet asks for no certificate")
		}
		if err != nil {
			return err
		}
		asked = *all.Items[0].DeepCopy()
		return Sign(t.Context(), s.Client, &all.Items[0], authority)
	})
	s.Kubectl(t, "wait", "--for=condition=Ready", "pod/identified", "--timeout=1m")
	block, rest := pem.Decode([]byte(s.Kubectl(t, "exec", "identified", "--", "cat", "/identity/bundle.pem")))
	if block == nil || block.Type != "PRIVATE KEY" {
		t.Fatalf("the bundle begins with %+v", block)
	}
	block, _ = pem.Decode(rest)
	if block == nil {
		t.Fatal("the bundle has no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.Subject.CommonName != s.Namespace+"/identified" {
		t.Errorf("the pod has the certificate of %v (%v)", cert, err)
	}

	for _, n := range s.Nodes { // the same request, by the other node
		if string(asked.Spec.NodeName) == n.Name {
			continue
		}
		again, err := json.Marshal(map[string]any{"apiVersion": "certificates.k8s.io/v1", "kind": "PodCertificateRequest",
			"metadata": map[string]string{"name": "stolen"}, "spec": asked.Spec})
		if err != nil {
			t.Fatal(err)
		}
		out, err := kubelet{s, n.Name}.try(t, string(again), "create --validate=false -f -")
		if err == nil || !strings.Contains(out, "forbidden") {
			t.Errorf("the node %s asks for a certificate of a pod on %s: %v: %s", n.Name, asked.Spec.NodeName, err, out)
		}
	}
}
