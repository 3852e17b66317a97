package endpoint

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

func (m *machine) fingerprint(t *testing.T) string {
	t.Helper()
	spki, err := x509.MarshalPKIXPublicKey(m.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pki.Fingerprint(&x509.Certificate{RawSubjectPublicKeyInfo: spki})
}

func (c *cluster) keys(t *testing.T, name string) Keys {
	t.Helper()
	claim, err := c.claims().get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return KeysOf(claim)
}

// TestRevoke: a removed machine comes back with a token and a new key only.
func TestRevoke(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, "a")
	c.want(t, agentToken, m, join.PathAgent, 200, "")
	if k := c.keys(t, "a"); k.Restricted || !k.Allows("any") {
		t.Errorf("a name that was never revoked: %+v", k)
	}
	for range 2 { // the second time nothing changes
		if err := c.claims().Revoke(t.Context(), "a", m.fingerprint(t)); err != nil {
			t.Fatal(err)
		}
	}
	node := who{node: "a"}
	c.want(t, node, m, join.PathAgent, 403, `"reason":"NodeRemoved"`)
	for _, path := range []string{join.PathCluster, join.PathTunnel} {
		if code, body := c.ask(t, node, m, http.MethodGet, path, nil); code != 403 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	c.want(t, agentToken, m, join.PathAgent, 403, "run coracle reset")
	other := newMachine(t, "b")
	other.key = m.key
	other.sign(t)
	c.want(t, agentToken, other, join.PathAgent, 403, "node a was removed")

	again := newMachine(t, "a")
	c.want(t, agentToken, again, join.PathAgent, 200, "")
	k := c.keys(t, "a")
	if !k.Restricted || k.Allows(m.fingerprint(t)) || !k.Revoked(m.fingerprint(t)) || !k.Allows(again.fingerprint(t)) || k.Allows("a kubelet's") {
		t.Errorf("after the name was taken again: %+v", k)
	}
	c.want(t, node, again, join.PathAgent, 200, "")
	if err := c.claims().Revoke(t.Context(), "a", m.fingerprint(t)); !IsRefusal(err) || c.keys(t, "a").Revoked(again.fingerprint(t)) {
		t.Errorf("a removal that began before revokes the next machine: %v", err)
	}
	if claim, _ := c.claims().get(t.Context(), "a"); !slices.Contains(claim.Finalizers, RestrictedLabel) {
		t.Error("the release before would delete the claim")
	}
}

// TestReplacedIsRevoked: the machine whose name another one takes, also if its Node was deleted before.
func TestReplacedIsRevoked(t *testing.T) {
	for name, node := range map[string]*corev1.Node{"with a Node": nodeAt("a", "192.0.2.7"), "without": nil} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "a"}}
			c := newCluster(t)
			old, m := newMachine(t, "a"), newMachine(t, "a")
			c.want(t, agentToken, old, join.PathAgent, 200, "")
			if _, err := c.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if node != nil {
				if _, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if node == nil {
				if err := c.claims().Registered(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			m.request.Replace = true
			c.want(t, who{groups: []string{join.GroupAgent, join.GroupReplace}}, m, join.PathAgent, 200, "")
			k := c.keys(t, "a")
			if !k.Revoked(old.fingerprint(t)) || !k.Allows(m.fingerprint(t)) {
				t.Errorf("%+v", k)
			}
			_, err := c.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("the pod of the old machine: %v", err)
			}
		})
	}
}

// TestReplacedInOrder: the former machine is refused before its Node is deleted, and the name is not given away while it has pods.
func TestReplacedInOrder(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "a"}}
	c := newCluster(t)
	old, m := newMachine(t, "a"), newMachine(t, "a")
	c.want(t, agentToken, old, join.PathAgent, 200, "")
	if _, err := c.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), nodeAt("a", "192.0.2.7"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fails := true
	for _, resource := range []string{"nodes", "pods"} {
		c.client.PrependReactor("delete", resource, func(k8stesting.Action) (bool, runtime.Object, error) {
			// Not with the client, which is locked.
			claim, err := c.client.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), metav1.NamespaceSystem, ClaimPrefix+"a")
			if err != nil {
				t.Error(err)
				return false, nil, nil
			}
			if k := KeysOf(claim.(*coordinationv1.Lease)); !k.Revoked(old.fingerprint(t)) || k.Allows(old.fingerprint(t)) || k.Allows(m.fingerprint(t)) {
				t.Errorf("when the %s are deleted: %+v", resource, k)
			}
			return fails && resource == "pods", nil, apierrors.NewInternalError(errors.New("etcd is away"))
		})
	}
	m.request.Replace = true
	c.want(t, replaceToken, m, join.PathAgent, 503, "etcd is away")
	if c.keys(t, "a").Allows(m.fingerprint(t)) {
		t.Error("another machine has the name, and the former one has tokens of its pods")
	}
	fails = false
	c.want(t, replaceToken, m, join.PathAgent, 200, "")
	if pods, err := c.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) != 0 || !c.keys(t, "a").Allows(m.fingerprint(t)) {
		t.Errorf("left are %v, %v", pods, err)
	}
}

// TestSlow: a machine that was too slow to register loses the name only, and can join under another one with its key.
func TestSlow(t *testing.T) {
	c := newCluster(t)
	slow, m := newMachine(t, "a"), newMachine(t, "a")
	c.want(t, agentToken, slow, join.PathAgent, 200, "")
	m.request.Replace = true
	c.want(t, replaceToken, m, join.PathAgent, 200, "")
	if k := c.keys(t, "a"); k.Allows(slow.fingerprint(t)) || k.Revoked(slow.fingerprint(t)) || !k.Allows(m.fingerprint(t)) {
		t.Errorf("%+v", k)
	}
	other := newMachine(t, "b")
	other.key = slow.key
	other.sign(t)
	c.want(t, agentToken, other, join.PathAgent, 200, "")
}

// TestRenameLeavesOthers: a former name that another machine has meanwhile keeps its Node.
func TestRenameLeavesOthers(t *testing.T) {
	c := newCluster(t, nodeAt("a", "192.0.2.7"))
	m := newMachine(t, "a")
	m.request.Replace = true
	c.want(t, replaceToken, m, join.PathAgent, 200, "")
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), nodeAt("a", "192.0.2.8"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.claims().Rename(t.Context(), []string{"a"}, "b", "a key of another machine"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{}); err != nil || !c.keys(t, "a").Allows(m.fingerprint(t)) {
		t.Errorf("the other machine's node: %v", err)
	}
	if err := c.claims().Rename(t.Context(), []string{"a"}, "b", m.fingerprint(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the own former node: %v", err)
	}
}

// TestRegistered: nobody else can have the name of a machine that has just joined, until it has registered and its Node is deleted.
func TestRegistered(t *testing.T) {
	c := newCluster(t)
	c.want(t, agentToken, newMachine(t, "a"), join.PathAgent, 200, "")
	c.want(t, agentToken, newMachine(t, "a"), join.PathAgent, 409, "joined just now")
	for range 2 {
		if err := c.claims().Registered(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	c.want(t, agentToken, newMachine(t, "a"), join.PathAgent, 200, "")
}

// TestAllow: only a key that may use a name adds others.
func TestAllow(t *testing.T) {
	c := newCluster(t)
	claims := c.claims()
	old, m := newMachine(t, "a"), newMachine(t, "a")
	c.want(t, agentToken, old, join.PathAgent, 200, "")
	if err := claims.Allow(t.Context(), "a", "", "first"); err != nil || c.keys(t, "a").Restricted {
		t.Errorf("a name that was never revoked: %v", err)
	}
	if err := claims.Revoke(t.Context(), "a", old.fingerprint(t)); err != nil {
		t.Fatal(err)
	}
	c.want(t, agentToken, m, join.PathAgent, 200, "")
	for _, by := range []string{"", "first", old.fingerprint(t)} {
		if err := claims.Allow(t.Context(), "a", by, "second"); !IsRefusal(err) {
			t.Errorf("by %q: %v", by, err)
		}
	}
	before := m.fingerprint(t)
	for i := range 2 * maxKeys {
		key := fmt.Sprintf("kubelet-%d", i)
		if err := claims.Allow(t.Context(), "a", before, key); err != nil {
			t.Fatal(err)
		}
		before = key
	}
	for i := range 2 * maxKeys { // requests that the kubelet gave up
		if err := claims.Allow(t.Context(), "a", before, fmt.Sprintf("given-up-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	k := c.keys(t, "a")
	if len(k.allowed) != maxKeys+1 || !k.Allows(before) || !k.Allows(m.fingerprint(t)) || k.Allows("kubelet-0") {
		t.Errorf("%+v", k)
	}
}

// TestRemovedServer gets no place in etcd until it has joined again.
func TestRemovedServer(t *testing.T) {
	c := newCluster(t)
	c.Members = oneMember("b")
	m := newMachine(t, "a")
	c.want(t, serverToken, m, join.PathServer, 200, "")
	check := func(refused bool) {
		t.Helper()
		code, body := c.ask(t, who{groups: []string{"system:authenticated"}}, nil, http.MethodPost, join.PathMembers, join.AddMember{Name: "a"})
		if code != http.StatusOK != refused {
			t.Errorf("etcd answers %d %s", code, body)
		}
		if err := c.claims().checkServer(t.Context(), "a"); IsRefusal(err) != refused || !refused && err != nil {
			t.Error(err)
		}
	}
	check(false)
	if err := c.claims().Revoke(t.Context(), "a", m.fingerprint(t)); err != nil {
		t.Fatal(err)
	}
	check(true)
	if mine, err := c.claims().Adopt(t.Context(), "a", m.fingerprint(t), nil); mine || err != nil {
		t.Errorf("it takes its name again: %t, %v", mine, err)
	}
	c.want(t, serverToken, newMachine(t, "a"), join.PathServer, 200, "")
	check(false)
}

// TestTidy: claims of machines that are gone are deleted, but none that says whose keys are refused.
func TestTidy(t *testing.T) {
	c := newCluster(t)
	old := func(age time.Duration, registered bool) *coordinationv1.Lease {
		key, at := "key", metav1.NewMicroTime(time.Now().Add(-age))
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &key, RenewTime: &at}}
		if !registered {
			l.Spec.AcquireTime = &at
		}
		return l
	}
	revoked := old(2*expiredAge, true)
	restrict(revoked, true)
	for name, lease := range map[string]*coordinationv1.Lease{
		"never-came": old(unregisteredAge+time.Hour, false), "comes-yet": old(time.Hour, false), "gone": old(expiredAge+time.Hour, true),
		"deleted": old(unregisteredAge+time.Hour, true), "lives": old(2*expiredAge, false), "revoked": revoked,
	} {
		lease.Name = ClaimPrefix + name
		if _, err := c.claims().leases().Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), nodeAt("lives", "192.0.2.9"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if former, err := c.claims().Former(t.Context(), "new", "other"); err != nil || len(former) > 0 {
		t.Errorf("another machine had %v, %v", former, err)
	}
	if err := c.claims().Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := c.claims().leases().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range list.Items {
		names = append(names, ClaimedBy(l.Name))
	}
	if slices.Sort(names); !slices.Equal(names, []string{"comes-yet", "deleted", "lives", "revoked"}) {
		t.Errorf("left are %v", names)
	}
	if _, err := c.claims().Former(t.Context(), "new", "key"); !IsRefusal(err) {
		t.Errorf("a revoked key: %v", err)
	}
	if err := c.claims().leases().Delete(t.Context(), ClaimPrefix+"revoked", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	former, err := c.claims().Former(t.Context(), "lives", "key")
	if slices.Sort(former); err != nil || !slices.Equal(former, []string{"comes-yet", "deleted"}) {
		t.Errorf("former names are %v, %v", former, err)
	}
}

func TestIncludes(t *testing.T) {
	keys := func(allowed ...string) Keys { return Keys{Restricted: true, allowed: allowed} }
	for _, test := range []struct {
		before, now Keys
		want        bool
	}{
		{Keys{}, Keys{}, true}, {Keys{}, keys("a"), false}, {keys("a"), Keys{}, true},
		{keys("a"), keys("a", "b"), true}, {keys("a", "b"), keys("b"), false}, {keys(), keys(), true},
	} {
		if got := test.now.Includes(test.before); got != test.want {
			t.Errorf("%+v includes %+v: %t", test.now, test.before, got)
		}
	}
}
