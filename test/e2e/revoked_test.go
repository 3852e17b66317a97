package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/test/hosts"
)

const signingRequests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// copiedKeys has copies of the keys and certificates of a machine.
type copiedKeys struct {
	name          string
	from          *hosts.Host
	node, kubelet tls.Certificate
	joined        *machine // whose keys they are
}

// try sends a request to a server and returns the answer's status and body; the status is 0 if the server does not answer.
func (x *copiedKeys) try(ctx context.Context, h *hosts.Host, pair *tls.Certificate, bearer, method, path string, body any) (int, string) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err.Error()
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+net.JoinHostPort(h.IP.String(), "6443")+path, strings.NewReader(string(data)))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	config := &tls.Config{InsecureSkipVerify: true}
	if pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	} else {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: x.from.Dial, TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

// copyKeys joins as a machine, makes its kubelet's certificate and its Node, and copies everything.
func copyKeys(t *testing.T, client kubernetes.Interface, server *hosts.Host, token, name string) *copiedKeys {
	t.Helper()
	x := &copiedKeys{name: name, from: server, joined: newMachine(t, name, "system:coracle:node:"+name, "system:coracle:nodes")}
	request := x.joined.request()
	request.Addresses, request.Labels = []netip.Addr{netip.MustParseAddr("203.0.113.9")}, manyLabels(100)
	hosts.Eventually(t, 10*time.Second, func() error { // the API server learns of a new token by a watch
		if code, text := x.try(t.Context(), server, nil, bearer(t, token), http.MethodPost, join.PathAgent, request); code != http.StatusBadRequest || !strings.Contains(text, "at most 64 labels") {
			return fmt.Errorf("joining with 100 labels: %d %s", code, text)
		}
		return nil
	})
	request.Labels = manyLabels(64)
	code, text := x.try(t.Context(), server, nil, bearer(t, token), http.MethodPost, join.PathAgent, request)
	var response join.Response
	if err := json.Unmarshal([]byte(text), &response); err != nil || code != http.StatusOK {
		t.Fatalf("joining as %s: %d %s", name, code, text)
	}
	x.node = pairOf(response.Cert, x.joined)
	x.kubelet = x.kubeletPair(t, client, &x.node)
	hosts.Eventually(t, time.Minute, func() error {
		node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		if code, text := x.try(t.Context(), server, &x.kubelet, "", http.MethodPost, "/api/v1/nodes", node); code != http.StatusCreated && code != http.StatusConflict {
			return fmt.Errorf("making a Node: %d %s", code, text)
		}
		return nil
	})
	return x
}

// manyLabels are labels of the greatest length. All of them are recorded in the machine's claim, which can be revoked nevertheless.
func manyLabels(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("%s%03d.com/%s", strings.Repeat("a.", 122), i, strings.Repeat("b", 63))] = strings.Repeat("c", 63)
	}
	return all
}

// kubeletPair requests a certificate for the machine's kubelet with one of its identities.
func (x *copiedKeys) kubeletPair(t *testing.T, client kubernetes.Interface, as *tls.Certificate) (pair tls.Certificate) {
	t.Helper()
	m := newMachine(t, x.name, "system:node:"+x.name, "system:nodes")
	request := signing(certificatesv1.KubeAPIServerClientKubeletSignerName, m.csr)
	var made certificatesv1.CertificateSigningRequest
	hosts.Eventually(t, time.Minute, func() error {
		code, text := x.try(t.Context(), x.from, as, "", http.MethodPost, signingRequests, request)
		if err := json.Unmarshal([]byte(text), &made); err != nil || code != http.StatusCreated {
			return fmt.Errorf("requesting a kubelet's certificate: %d %s", code, text)
		}
		return nil
	})
	hosts.Eventually(t, time.Minute, func() error {
		csr, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), made.Name, metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("there is no certificate: %+v", csr.Status.Conditions)
		}
		if err == nil {
			pair = pairOf(csr.Status.Certificate, m)
		}
		return err
	})
	return pair
}

func pairOf(cert []byte, m *machine) tls.Certificate {
	block, _ := pem.Decode(cert)
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: m.key}
}

// podToken makes a pod on the machine's node and returns the token of its service account, as the kubelet gets it.
func (x *copiedKeys) podToken(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: x.name}, Spec: corev1.PodSpec{NodeName: x.name, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	pod, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var made authenticationv1.TokenRequest
	request := &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec:     authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}
	hosts.Eventually(t, time.Minute, func() error {
		code, text := x.try(t.Context(), x.from, &x.kubelet, "", http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/default/token", request)
		if code != http.StatusCreated {
			return fmt.Errorf("requesting a token: %d %s", code, text)
		}
		return json.Unmarshal([]byte(text), &made)
	})
	token := made.Status.Token
	if code, text := x.try(t.Context(), x.from, nil, token, http.MethodGet, "/api/v1/pods", nil); code != http.StatusForbidden {
		t.Errorf("before the removal a pod's token is answered %d %s", code, text)
	}
	return token
}

// says sets the addresses of the machine's Node, as its kubelet, and returns the answer's status.
func (x *copiedKeys) says(t *testing.T, addresses ...corev1.NodeAddress) int {
	t.Helper()
	data, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": addresses}})
	if err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/nodes/" + x.name + "/status"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://"+net.JoinHostPort(x.from.IP.String(), "6443")+path, strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	transport := &http.Transport{DialContext: x.from.Dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{x.kubelet}}}
	answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusForbidden {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s says %+v: %d %s", x.name, addresses, answer.StatusCode, text)
	}
	return answer.StatusCode
}

// hold opens a watch or, with a protocol to upgrade to, a tunnel, and returns a channel that gets the time when the server closes it.
func (x *copiedKeys) hold(t *testing.T, h *hosts.Host, pair *tls.Certificate, path, upgrade string) <-chan time.Time {
	t.Helper()
	plain, err := x.from.Dial(t.Context(), "tcp", net.JoinHostPort(h.IP.String(), "6443"))
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(plain, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*pair}, NextProtos: []string{"http/1.1"}})
	t.Cleanup(func() { conn.Close() })
	headers := "Host: x\r\n"
	if upgrade != "" {
		headers += "Connection: Upgrade\r\nUpgrade: " + upgrade + "\r\n"
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\n%s\r\n", path, headers)
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	if err != nil || answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s at %s: %+v, %v", path, h.Name, answer, err)
	}
	closed := make(chan time.Time, 1)
	go func() {
		if answer.StatusCode == http.StatusOK {
			_, _ = io.Copy(io.Discard, answer.Body)
		} else {
			_, _ = io.Copy(io.Discard, reader)
		}
		closed <- time.Now()
	}()
	return closed
}

// holdAll opens a watch with each identity, and a tunnel, at a server.
func (x *copiedKeys) holdAll(t *testing.T, h *hosts.Host) []<-chan time.Time {
	t.Helper()
	return []<-chan time.Time{
		x.hold(t, h, &x.node, "/api/v1/nodes?watch=true", ""),
		x.hold(t, h, &x.kubelet, "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3D"+x.name, ""),
		x.hold(t, h, &x.node, join.PathTunnel, "coracle-tunnel"),
	}
}

// lastServed asks a server with both identities until it has refused them for two seconds, and returns when it last served one; at most for a
// minute.
func (x *copiedKeys) lastServed(ctx context.Context, h *hosts.Host) (last time.Time, err error) {
	refused, end := time.Time{}, time.Now().Add(time.Minute)
	for time.Now().Before(end) && ctx.Err() == nil {
		node, text := x.try(ctx, h, &x.node, "", http.MethodGet, "/api/v1/nodes", nil)
		kubelet, _ := x.try(ctx, h, &x.kubelet, "", http.MethodGet, "/api/v1/nodes/"+x.name, nil)
		switch {
		case node == http.StatusOK || kubelet == http.StatusOK || kubelet == http.StatusNotFound:
			last, refused = time.Now(), time.Time{}
		case node != http.StatusUnauthorized || kubelet != http.StatusUnauthorized:
			err = fmt.Errorf("%s answers %d and %d: %s", h.Name, node, kubelet, text) // it starts
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > 2*time.Second:
			return last, nil
		}
		_ = sleepFor(ctx, 5*time.Millisecond)
	}
	return last, errors.Join(fmt.Errorf("%s does not refuse the machine", h.Name), err)
}

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wantRefused sends what a removed machine must not be able to do to a server.
func (x *copiedKeys) wantRefused(t *testing.T, h *hosts.Host, token string) {
	t.Helper()
	kubelet := newMachine(t, x.name, "system:node:"+x.name, "system:nodes")
	serving := newMachine(t, x.name, "system:node:"+x.name, "system:nodes")
	serving.template.DNSNames = []string{x.name}
	serving.sign(t, serving.key)
	for _, a := range []struct {
		what         string
		pair         *tls.Certificate
		method, path string
		body         any
	}{
		{"reading pods as the node", &x.node, http.MethodGet, "/api/v1/pods", nil},
		{"reading its pods as the kubelet", &x.kubelet, http.MethodGet, "/api/v1/pods?fieldSelector=spec.nodeName%3D" + x.name, nil},
		{"making its Node again", &x.kubelet, http.MethodPost, "/api/v1/nodes", &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: x.name}}},
		{"a kubelet's certificate as the node", &x.node, http.MethodPost, signingRequests, signing(certificatesv1.KubeAPIServerClientKubeletSignerName, kubelet.csr)},
		{"the renewal of a kubelet's certificate", &x.kubelet, http.MethodPost, signingRequests, signing(certificatesv1.KubeAPIServerClientKubeletSignerName, kubelet.csr)},
		{"a serving certificate", &x.kubelet, http.MethodPost, signingRequests, signing(certificatesv1.KubeletServingSignerName, serving.csr)},
		{"the renewal of the node's certificate", &x.node, http.MethodPost, join.PathAgent, x.joined.request()},
		{"the cluster's settings", &x.node, http.MethodGet, join.PathCluster, nil},
		{"a tunnel", &x.node, http.MethodGet, join.PathTunnel, nil},
	} {
		if code, text := x.try(t.Context(), h, a.pair, "", a.method, a.path, a.body); code != http.StatusUnauthorized {
			t.Errorf("%s: %s: %d %s", h.Name, a.what, code, text)
		}
	}
	code, text := x.try(t.Context(), h, nil, bearer(t, token), http.MethodPost, join.PathAgent, x.joined.request())
	if code != http.StatusForbidden || !strings.Contains(text, "run coracle reset") {
		t.Errorf("%s: joining again with the old key: %d %s", h.Name, code, text)
	}
}

// testRevoked removes machines whose keys somebody has copied, while one of three servers restarts. CORACLE_TEST_REVOCATIONS is how many.
func testRevoked(t *testing.T, c *hosts.Cluster) {
	first, last := c.Servers[0], c.Servers[2]
	client, err := c.Client(first, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	rounds, _ := strconv.Atoi(os.Getenv("CORACLE_TEST_REVOCATIONS"))
	joinToken := strings.TrimSpace(first.Coracle("token", "create"))
	var took []time.Duration
	for i := range max(rounds, 1) {
		x := copyKeys(t, client, first, joinToken, fmt.Sprintf("stolen-%d", i))
		var held []<-chan time.Time
		for _, h := range c.Servers[:2] {
			held = append(held, x.holdAll(t, h)...)
		}
		token := x.podToken(t, client)
		if err := c.Running(last).Stop(); err != nil {
			t.Error(err)
		}
		began := time.Now()
		c.Start(last)
		removed := time.Now()
		var mu sync.Mutex
		var asking sync.WaitGroup
		worst := removed
		note := func(at time.Time) {
			mu.Lock()
			defer mu.Unlock()
			if at.After(worst) {
				worst = at
			}
		}
		for _, h := range c.Servers {
			asking.Go(func() {
				at, err := x.lastServed(t.Context(), h)
				if err != nil {
					t.Error(err)
				}
				note(at)
			})
		}
		first.Coracle("node", "remove", "--force", x.name)
		for _, closed := range held {
			select {
			case at := <-closed:
				note(at)
			case <-time.After(time.Minute):
				t.Error("a watch or a tunnel stays open")
			}
		}
		asking.Wait()
		took = append(took, worst.Sub(removed))
		for _, h := range c.Servers[:2] {
			x.wantRefused(t, h, joinToken)
		}
		c.AwaitHealthy(began, 3*time.Minute)
		hosts.Eventually(t, time.Minute, func() error { // the API of a server that starts is ready before machines can join
			if code, text := x.try(t.Context(), last, &x.node, "", http.MethodGet, join.PathCluster, nil); code == http.StatusServiceUnavailable {
				return errors.New(text)
			}
			return nil
		})
		x.wantRefused(t, last, joinToken)
		hosts.Eventually(t, 20*time.Second, func() error { // the API server caches that a token is valid for ten seconds
			if code, text := x.try(t.Context(), first, nil, token, http.MethodGet, "/api/v1/pods", nil); code != http.StatusUnauthorized {
				return fmt.Errorf("with the token of a pod: %d %s", code, text)
			}
			return nil
		})
	}
	again := copyKeys(t, client, first, joinToken, "stolen-0") // another machine with the name, and its kubelet renews its certificate
	again.kubelet = again.kubeletPair(t, client, &again.kubelet)
	hosts.Eventually(t, 20*time.Second, func() error {
		for _, h := range c.Servers {
			for _, pair := range []*tls.Certificate{&again.node, &again.kubelet} {
				if code, text := again.try(t.Context(), h, pair, "", http.MethodGet, "/api/v1/nodes/stolen-0", nil); code != http.StatusOK {
					return fmt.Errorf("%s: the next machine with the name: %d %s", h.Name, code, text)
				}
			}
		}
		return nil
	})
	first.Coracle("node", "remove", "--force", again.name)
	slices.Sort(took)
	t.Logf("from the beginning of coracle node remove to the last answer: %s", took)
	if worst := took[len(took)-1]; worst > 5*time.Second {
		t.Errorf("a removed machine is served for %s", worst)
	}
}
