package endpoint

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// TestRenameDeletesThatNode: the Node that the claim was about, and not one of the same name that another machine registers meanwhile.
func TestRenameDeletesThatNode(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, "a")
	c.want(t, agentToken, m, join.PathAgent, 200, "")
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), nodeAt("a", "192.0.2.7"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var precondition *types.UID
	c.client.PrependReactor("delete", "nodes", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if o := action.(k8stesting.DeleteActionImpl).DeleteOptions; o.Preconditions != nil {
			precondition = o.Preconditions.UID
		}
		return false, nil, nil
	})
	if err := c.claims().Rename(t.Context(), []string{"a"}, "b", m.fingerprint(t)); err != nil {
		t.Fatal(err)
	}
	if precondition == nil || *precondition != "1" {
		t.Errorf("the Node was deleted with UID precondition %v", precondition)
	}
}

// TestAdopt: a server is told whether another machine has a claim on its name, as addresses alone prove nothing then.
func TestAdopt(t *testing.T) {
	c := newCluster(t, nodeAt("a", "192.0.2.7"))
	for _, key := range []string{"first", "second"} {
		asked := 0
		mine, err := c.claims().Adopt(t.Context(), "a", key, func(node *corev1.Node, claimed bool) bool {
			if asked++; node.Name != "a" || claimed != (key == "second") {
				t.Errorf("%s: node %s, claimed %t", key, node.Name, claimed)
			}
			return key == "first"
		})
		if err != nil || mine != (key == "first") || asked != 1 {
			t.Errorf("%s: %t, %v after %d questions", key, mine, err, asked)
		}
	}
	if held, err := c.claims().Holder(t.Context(), "a"); err != nil || held != "first" {
		t.Errorf("the name is %s's, %v", held, err)
	}
}

// TestRevokedWithItsKubelet: with a machine, all keys that were recorded for it are refused, and it is not found by its key any more.
func TestRevokedWithItsKubelet(t *testing.T) {
	c := newCluster(t)
	for range 2 { // the second time the name is restricted before
		m := newMachine(t, "a")
		c.want(t, agentToken, m, join.PathAgent, 200, "")
		if err := c.claims().Revoke(t.Context(), "a", m.fingerprint(t)); err != nil {
			t.Fatal(err)
		}
		if claim, err := c.claims().get(t.Context(), "a"); err != nil || claim.Labels[keyLabel] != "" {
			t.Errorf("labels %v, %v", claim.Labels, err)
		}
	}
	third := newMachine(t, "a")
	c.want(t, agentToken, third, join.PathAgent, 200, "")
	if err := c.claims().Allow(t.Context(), "a", third.fingerprint(t), "kubelet"); err != nil || !c.keys(t, "a").Allows("kubelet") {
		t.Fatal(err)
	}
	if err := c.claims().Revoke(t.Context(), "a", third.fingerprint(t)); err != nil {
		t.Fatal(err)
	}
	if k := c.keys(t, "a"); k.Allows("kubelet") || k.Allows(third.fingerprint(t)) {
		t.Errorf("after its removal: %+v", k)
	}
}

// TestMachineOfAnother: what one machine said of itself is not taken for the words of the next one with its name.
func TestMachineOfAnother(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, "a")
	c.want(t, agentToken, m, join.PathAgent, 200, "")
	said := Machine{Key: "another", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Server: true}
	if err := c.claims().record(t.Context(), "a", said); err != nil {
		t.Fatal(err)
	}
	claim, err := c.claims().get(t.Context(), "a")
	if err != nil || claim.Annotations[machineAnnotation] != "" {
		t.Errorf("recorded is %q, %v", claim.Annotations[machineAnnotation], err)
	}
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, machineAnnotation, `{"key":"another","server":true,"addresses":["192.0.2.1"]}`)
	if got, known := MachineOf(claim); known || got.Server {
		t.Errorf("it is known as %+v", got)
	}
}

// TestServersName: a token for agents that allows to replace does not take a server's name, whose etcd member would go with it.
func TestServersName(t *testing.T) {
	server := nodeAt("a", "192.0.2.7")
	server.Labels = map[string]string{kube.ControlPlaneLabel: "true"}
	m := newMachine(t, "a")
	m.request.Replace = true
	newCluster(t, server).want(t, replaceToken, m, join.PathAgent, 409, "--role server --allow-replace")
	both := who{groups: []string{join.GroupServer, join.GroupReplace}}
	newCluster(t, server).want(t, both, m, join.PathServer, 200, "")
}
