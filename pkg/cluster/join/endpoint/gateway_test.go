package endpoint

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// askGateway asks for what the gateway of a node serves.
func askGateway(t *testing.T, g *Gateways, u user.Info, tag string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, join.PathGateway, nil)
	r.Header.Set("If-None-Match", tag)
	answer := httptest.NewRecorder()
	g.ServeHTTP(answer, r.WithContext(request.WithUser(r.Context(), u)))
	return answer
}

func asNode(name string) user.Info {
	return &user.DefaultInfo{Name: pki.NodeUser + name, Groups: []string{pki.NodeGroup}}
}

// TestGatewayOfStolenAgent: only an agent with the label gets keys, and none after the label was removed, even if its request waits.
func TestGatewayOfStolenAgent(t *testing.T) {
	labelled := map[string]string{kube.GatewayLabel: "true"}
	client := fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: labelled}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stolen"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "off", Labels: map[string]string{kube.GatewayLabel: "false"}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "server", Labels: map[string]string{kube.GatewayLabel: "true", kube.ControlPlaneLabel: "true"}}},
	)
	shares := addon.NewGatewayShares()
	g := &Gateways{Client: client, Share: shares.Of}
	if got := askGateway(t, g, asNode("edge"), ""); got.Code != http.StatusServiceUnavailable {
		t.Errorf("before anything is known: %d %s", got.Code, got.Body)
	}
	all := map[string][]byte{}
	for _, name := range []string{"edge", "stolen", "off", "server", "gone"} {
		all[name] = []byte("the key of " + name)
	}
	shares.Set(all, nil)
	for _, name := range []string{"stolen", "off", "server", "gone"} {
		if got := askGateway(t, g, asNode(name), ""); got.Code != http.StatusForbidden || !strings.Contains(got.Body.String(), join.ReasonNoGateway) {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
	}
	for _, u := range []user.Info{
		&user.DefaultInfo{Name: "system:node:edge", Groups: []string{"system:nodes"}}, &user.DefaultInfo{Name: pki.NodeUser + "edge"}, &user.DefaultInfo{Name: "alice"},
	} {
		if got := askGateway(t, g, u, ""); got.Code != http.StatusForbidden {
			t.Errorf("%+v: %d %s", u, got.Code, got.Body)
		}
	}
	got := askGateway(t, g, asNode("edge"), "")
	if got.Code != http.StatusOK || got.Body.String() != "the key of edge" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	for _, c := range []struct {
		labels map[string]string
		code   int
	}{{labelled, http.StatusOK}, {nil, http.StatusForbidden}} {
		waits := make(chan *httptest.ResponseRecorder)
		before := got.Header().Get("ETag")
		asked := make(chan struct{}, 2)
		g.Share = func(node string) ([]byte, <-chan struct{}) {
			asked <- struct{}{}
			return shares.Of(node)
		}
		go func() { waits <- askGateway(t, g, asNode("edge"), before) }()
		<-asked
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: c.labels}}
		if _, err := client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		shares.Set(map[string][]byte{"edge": []byte("another key, with labels " + c.labels[kube.GatewayLabel])}, nil)
		if got = <-waits; got.Code != c.code || strings.Contains(got.Body.String(), "another key") != (c.code == http.StatusOK) {
			t.Errorf("with labels %v: %d %s", c.labels, got.Code, got.Body)
		}
	}
	shares.Set(nil, []byte("nothing"))
	if share, _ := shares.Of("any"); string(share) != "nothing" {
		t.Errorf("%s", share)
	}
}

// TestGatewayRequestsOfOneNode: of the requests of a node only the last one waits.
func TestGatewayRequestsOfOneNode(t *testing.T) {
	shares := addon.NewGatewayShares()
	shares.Set(map[string][]byte{"edge": []byte("x")}, nil)
	asked := make(chan struct{}, 2)
	g := &Gateways{Client: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: map[string]string{kube.GatewayLabel: "true"}}})}
	g.Share = func(node string) ([]byte, <-chan struct{}) {
		asked <- struct{}{}
		return shares.Of(node)
	}
	tag := func() string {
		defer func() { <-asked }()
		return askGateway(t, g, asNode("edge"), "").Header().Get("ETag")
	}()
	ended := make(chan int, 2)
	for range 2 {
		go func() { ended <- askGateway(t, g, asNode("edge"), tag).Code }()
		<-asked
	}
	if code := <-ended; code != http.StatusNotModified {
		t.Errorf("the first request: %d", code)
	}
	shares.Set(map[string][]byte{"edge": []byte("y")}, nil)
	if code := <-ended; code != http.StatusOK {
		t.Errorf("the second request: %d", code)
	}
}
