package endpoint

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// cluster is a Server over a fake API.
type cluster struct {
	*Server
	client *fake.Clientset
	signed []string
}

func newCluster(t *testing.T, objects ...runtime.Object) *cluster {
	port := int32(6443)
	objects = append(objects, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"},
		Ports:      []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.2"}}, {Addresses: []string{"192.0.2.1"}}},
	})
	c := &cluster{client: fake.NewClientset(objects...)}
	log := logrus.New()
	log.SetOutput(t.Output())
	c.Server = &Server{
		Client: c.client, Version: "v1.37.1+coracle.1", Own: "192.0.2.1:6443", Log: log,
		CA: func() ([]byte, error) { return []byte("the CA"), nil },
		Settings: func() (config.ClusterSettings, error) {
			return config.ClusterSettings{"cluster-cidr": "10.42.0.0/16", "encryption-provider-config": "secret"}, nil
		},
		Keys: func() (map[string][]byte, error) { return map[string][]byte{"ca.key": []byte("the key")}, nil },
		Sign: func(_ []byte, node string) ([]byte, error) {
			c.signed = append(c.signed, node)
			return []byte("cert"), nil
		},
		BeforeServer: func() error { return nil },
	}
	return c
}

// who asks, and from where. The node's name is "" for a token.
type who struct {
	groups []string
	node   string
	from   string
	ago    time.Duration // since its certificate has expired, if not 0
}

var (
	agentToken   = who{groups: []string{join.GroupAgent}}
	serverToken  = who{groups: []string{join.GroupServer}}
	replaceToken = who{groups: []string{join.GroupAgent, join.GroupReplace}}
)

// ask sends a request as somebody. A node's connection is made with the machine's key.
func (c *cluster) ask(t *testing.T, w who, m *machine, method, path string, body any) (int, string) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	info := &user.DefaultInfo{Name: "system:bootstrap:abcdef", Groups: w.groups}
	r := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader(data))
	r.RemoteAddr = "198.51.100.9:1234"
	if w.from != "" {
		r.RemoteAddr = w.from + ":1234"
	}
	if w.node != "" {
		info.Name, info.Groups = pki.NodeUser+w.node, []string{pki.NodeGroup}
		spki, err := x509.MarshalPKIXPublicKey(m.key.Public())
		if err != nil {
			t.Fatal(err)
		}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{RawSubjectPublicKeyInfo: spki, NotAfter: time.Now().Add(cmp.Or(-w.ago, time.Hour))}}}
	}
	answer := httptest.NewRecorder()
	c.Handler().ServeHTTP(answer, r.WithContext(request.WithUser(r.Context(), info)))
	return answer.Code, answer.Body.String()
}

// want asks at one of the paths for joining and compares.
func (c *cluster) want(t *testing.T, w who, m *machine, path string, code int, text string) string {
	t.Helper()
	got, body := c.ask(t, w, m, http.MethodPost, path, m.request)
	if got != code || !strings.Contains(body, text) {
		t.Errorf("%s as %+v at %s: %d %s, want %d and %q", m.request.Node, w, path, got, body, code, text)
	}
	return body
}

func nodeAt(name, ip string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"}, {Type: corev1.NodeHostName, Address: name}}
	return n
}

func TestJoin(t *testing.T) {
	c := newCluster(t)
	first, second := newMachine(t, "a"), newMachine(t, "a")
	body := c.want(t, agentToken, first, join.PathAgent, 200, `"servers":["192.0.2.1:6443","192.0.2.2:6443"]`)
	if strings.Contains(body, "secret") || strings.Contains(body, "ca.key") {
		t.Errorf("an agent is told %s", body)
	}
	c.want(t, agentToken, first, join.PathAgent, 200, "") // again, after a crash
	c.want(t, agentToken, second, join.PathAgent, 409, "which joined just now")
	c.want(t, replaceToken, second, join.PathAgent, 409, "which joined just now") // it has not asked to replace
	c.want(t, agentToken, newMachine(t, "b"), join.PathServer, 403, "--role server")
	body = c.want(t, serverToken, newMachine(t, "b"), join.PathServer, 200, `"ca.key"`)
	if !strings.Contains(body, "encryption-provider-config") {
		t.Errorf("a server is told %s only", body)
	}
	c.want(t, who{groups: []string{"system:masters"}}, newMachine(t, "c"), join.PathAgent, 403, "without a token")
	if got := strings.Join(c.signed, " "); got != "a a b" {
		t.Errorf("signed for %s", got)
	}
}

func TestTakenName(t *testing.T) {
	for _, test := range []struct {
		name    string
		who     who
		replace bool
		path    string
		refused string
	}{
		{"another machine", agentToken, false, join.PathAgent, "is another machine's (192.0.2.7, 203.0.113.1)"},
		{"replace, with a token that does not allow it", agentToken, true, join.PathAgent, "does not allow --replace-node"},
		{"allowed, but not asked", replaceToken, false, join.PathAgent, "--replace-node"},
		{"replace", replaceToken, true, join.PathAgent, ""},
		{"a server from elsewhere", serverToken, false, join.PathServer, "is another machine's"},
		{"a server from the node's address", who{groups: serverToken.groups, from: "192.0.2.7"}, false, join.PathServer, ""},
		{"a server from behind the same NAT", who{groups: serverToken.groups, from: "203.0.113.1"}, false, join.PathServer, "is another machine's"},
		{"an agent from the node's address", who{groups: agentToken.groups, from: "192.0.2.7"}, false, join.PathAgent, "is another machine's"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCluster(t, nodeAt("a", "192.0.2.7"))
			m := newMachine(t, "a")
			m.request.Replace = test.replace
			code := 200
			if test.refused != "" {
				code = 409
			}
			c.want(t, test.who, m, test.path, code, test.refused)
			_, err := c.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
			if gone := apierrors.IsNotFound(err); gone != (test.refused == "") {
				t.Errorf("the old node: %v", err)
			}
		})
	}
}

// TestReplaceDeletesThatNode: the Node that is replaced, and not one of the same name that another machine registers meanwhile.
func TestReplaceDeletesThatNode(t *testing.T) {
	c := newCluster(t, nodeAt("a", "192.0.2.7"))
	var precondition *types.UID
	c.client.PrependReactor("delete", "nodes", func(action k8stesting.Action) (bool, runtime.Object, error) {
		if o := action.(k8stesting.DeleteActionImpl).DeleteOptions; o.Preconditions != nil {
			precondition = o.Preconditions.UID
		}
		return false, nil, nil
	})
	m := newMachine(t, "a")
	m.request.Replace = true
	c.want(t, replaceToken, m, join.PathAgent, 200, "")
	if precondition == nil || *precondition != "1" {
		t.Errorf("the Node was deleted with UID precondition %v", precondition)
	}
}

// TestReplaceFails: while the former machine's Node is there, another one does not get its name.
func TestReplaceFails(t *testing.T) {
	c := newCluster(t, nodeAt("a", "192.0.2.7"))
	c.client.PrependReactor("delete", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "a", errors.New("it is another one now"))
	})
	m := newMachine(t, "a")
	m.request.Replace = true
	c.want(t, replaceToken, m, join.PathAgent, 503, "it is another one now")
}

// TestServersVersion: a server may be one minor version behind, a node three.
func TestServersVersion(t *testing.T) {
	c := newCluster(t)
	m := newMachine(t, "a")
	m.request.Version = "v1.35.9+coracle.1"
	c.want(t, serverToken, m, join.PathServer, 409, "at most 1 minor versions")
	c.want(t, serverToken, m, join.PathAgent, 200, "")
}

// TestRename: a machine that joins under another name is not two nodes.
func TestRename(t *testing.T) {
	c := newCluster(t, nodeAt("other", "192.0.2.8"))
	m := newMachine(t, "before")
	c.want(t, agentToken, m, join.PathAgent, 200, "")
	c.want(t, agentToken, newMachine(t, "third"), join.PathAgent, 200, "")
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), nodeAt("before", "192.0.2.7"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	after := newMachine(t, "after")
	after.key = m.key
	after.sign(t)
	c.want(t, agentToken, after, join.PathAgent, 200, "")
	if _, err := c.client.CoreV1().Nodes().Get(t.Context(), "before", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the former node: %v", err)
	}
	if _, err := c.client.CoreV1().Nodes().Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	leases, err := c.claims().leases().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 3 {
		t.Errorf("the claims are %v, %v", leases, err)
	}
	if keys := c.keys(t, "before"); keys.Allows(m.fingerprint(t)) || keys.Revoked(m.fingerprint(t)) {
		t.Errorf("the machine's key under its former name: %+v", keys)
	}
	c.want(t, agentToken, newMachine(t, "before"), join.PathAgent, 200, "") // the name is free
}

func TestNode(t *testing.T) {
	c := newCluster(t)
	m, other := newMachine(t, "a"), newMachine(t, "a")
	c.want(t, agentToken, m, join.PathAgent, 200, "")
	node := who{node: "a"}
	get := func(m *machine, path string, code int, text string) {
		t.Helper()
		if got, body := c.ask(t, node, m, http.MethodGet, path, nil); got != code || !strings.Contains(body, text) {
			t.Errorf("%s: %d %s, want %d %s", path, got, body, code, text)
		}
	}
	get(m, join.PathCluster, 200, "10.42.0.0/16")
	if _, body := c.ask(t, node, m, http.MethodGet, join.PathCluster, nil); strings.Contains(body, "encryption") {
		t.Errorf("a node is told %s", body)
	}
	get(other, join.PathCluster, 403, "another machine's now")
	get(other, join.PathTunnel, 403, "another machine's now")
	get(m, join.PathTunnel, 404, "no tunnels")
	c.Tunnel = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	get(m, join.PathTunnel, http.StatusTeapot, "")

	c.want(t, node, m, join.PathAgent, 200, "") // renewal
	c.want(t, node, newMachine(t, "b"), join.PathAgent, 403, "cannot have a certificate for node b")
	key := m.key
	m.key = other.key
	c.want(t, node, m, join.PathAgent, 403, "for the key that it has")
	m.key = key

	if err := c.claims().leases().Delete(t.Context(), ClaimPrefix+"a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	get(m, join.PathCluster, 403, "was removed") // by a release that keeps no revocations
	c.want(t, node, m, join.PathAgent, 403, "was removed")
	if _, err := c.client.CoreV1().Nodes().Create(t.Context(), nodeAt("a", "192.0.2.7"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.want(t, node, m, join.PathAgent, 200, "") // somebody deleted the claim, or the node registered again
	if claim, err := c.claims().get(t.Context(), "a"); err != nil || registered(claim) {
		t.Errorf("a new claim counts as that of a machine which registered: %v", err)
	}
	get(other, join.PathCluster, 403, "another machine's now")
}

func TestMembers(t *testing.T) {
	c := newCluster(t)
	server := who{groups: []string{"system:authenticated"}}
	if code, body := c.ask(t, server, nil, http.MethodGet, join.PathMembers, nil); code != 404 || !strings.Contains(body, "external datastore") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := c.ask(t, server, nil, http.MethodPut, join.PathMembers, nil); code != 405 {
		t.Errorf("%d %s", code, body)
	}
}

type oneMember string

func (m oneMember) List(context.Context) ([]join.Member, error) {
	return []join.Member{{Name: string(m)}}, nil
}

func (m oneMember) Add(context.Context, join.AddMember) (join.AddedMember, error) {
	return join.AddedMember{}, nil
}

// TestNameOfMember: a server keeps its name without a Node.
func TestNameOfMember(t *testing.T) {
	c := newCluster(t)
	c.Members = oneMember("a")
	c.want(t, agentToken, newMachine(t, "a"), join.PathAgent, 409, "a member of etcd")
	c.want(t, replaceToken, newMachine(t, "a"), join.PathAgent, 409, "a member of etcd")
	c.want(t, agentToken, newMachine(t, "b"), join.PathAgent, 200, "")
	c.want(t, serverToken, newMachine(t, "a"), join.PathServer, 200, "")
}

func TestMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*join.Request)
		text   string
	}{
		"no request":        {func(r *join.Request) { r.CSR = nil }, "not in PEM form"},
		"another's request": {func(r *join.Request) { r.Node = "b" }, "is for"},
		"no name":           {func(r *join.Request) { r.Node = "" }, "is not a node name"},
		"a path":            {func(r *join.Request) { r.Node = "../a" }, "is not a node name"},
		"capitals":          {func(r *join.Request) { r.Node = "A" }, "is not a node name"},
		"long":              {func(r *join.Request) { r.Node = strings.Repeat("a", 64) }, "63"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, "a")
			test.change(&m.request)
			newCluster(t).want(t, agentToken, m, join.PathAgent, 400, test.text)
		})
	}
	c := newCluster(t)
	if code, body := c.ask(t, agentToken, nil, http.MethodPost, join.PathAgent, strings.Repeat("x", largestBody)); code != 413 {
		t.Errorf("a large body: %d %s", code, body)
	}
}

func TestVersion(t *testing.T) {
	const server = "v1.37.1+coracle.1"
	for _, test := range []struct {
		version string
		skew    int
		text    string
	}{
		{"v1.37.1+coracle.1", maxSkew, ""}, {"v1.37.9", maxSkew, ""}, {"v1.34.0", maxSkew, ""}, {"v1.37.1+coracle.dev", maxServerSkew, ""},
		{"v1.33.9", maxSkew, "too far apart"}, {"v1.38.0", maxSkew, "must not be newer"}, {"v2.0.0", maxSkew, "too far apart"},
		{"v1.36.0", maxServerSkew, ""}, {"v1.35.0", maxServerSkew, "too far apart"}, {"", maxSkew, "not a version"},
	} {
		err := checkVersion(test.version, server, test.skew)
		if (err == nil) != (test.text == "") || err != nil && !strings.Contains(err.Error(), test.text) {
			t.Errorf("%q: %v, want %q", test.version, err, test.text)
		}
	}
}

// TestCallerIsANode only by name and group: tokens, certificates and service accounts may have any name.
func TestCallerIsANode(t *testing.T) {
	for _, test := range []struct {
		caller
		node string
	}{
		{caller{pki.NodeUser + "a", []string{pki.NodeGroup}}, "a"},
		{caller{pki.NodeUser + "a", []string{"system:authenticated"}}, ""},
		{caller{"system:bootstrap:abcdef", []string{pki.NodeGroup}}, ""},
	} {
		if got := test.caller.node(); got != test.node {
			t.Errorf("%+v: %q", test.caller, got)
		}
	}
}
