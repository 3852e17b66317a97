package e2e

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestBadJoins tries requests that must not let a machine join a cluster, or do more than it may.
func TestBadJoins(t *testing.T) {
	slots.Take(t)
	b := &badJoins{Cluster: hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 1})}
	b.server, b.agent = b.Servers[0], b.Agents[0]
	b.agentToken, b.serverToken = b.token("--role=agent"), b.token("--role=server")
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"nobody", b.nobody},
		{"agent's token", b.mayOnlyJoin},
		{"node", b.node},
		{"other machine", b.otherMachine},
		{"version", b.version},
		{"request for another node", b.otherName},
		{"kubelets' requests", b.kubelets},
		{"names of others", b.namesOfOthers},
		{"wrong clock", b.clock},
		{"tunnels", b.tunnels},
		{"guesses", b.guesses},
		{"bad input", b.badInput},
		{"replaced", b.replaced}, // last, because it takes the agent's name
	} {
		t.Run(test.name, test.run)
	}
}

type badJoins struct {
	*hosts.Cluster
	server, agent           *hosts.Host
	agentToken, serverToken string
	guests                  int
}

// token creates a token.
func (b *badJoins) token(args ...string) string {
	return strings.TrimSpace(b.server.Coracle(append([]string{"token", "create"}, args...)...))
}

// bearer is a token in the form that Kubernetes accepts.
func bearer(t *testing.T, text string) string {
	tok, err := join.ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok.Bearer()
}

// asker makes requests from the agent's host, with some identity or none.
type asker struct {
	b      *badJoins
	bearer string
	format string // Content-Type of what it sends
	pair   *tls.Certificate
}

// as uses one of the agent's certificates: "node" or "kubelet".
func (b *badJoins) as(t *testing.T, who string) asker {
	t.Helper()
	cert, key := "/var/lib/coracle/node/pki/node.crt", "/var/lib/coracle/node/pki/node.key"
	if who == "kubelet" {
		cert = "/var/lib/coracle/node/pki/kubelet-client-current.pem"
		target, err := os.Readlink(b.agent.Path(cert))
		if err != nil {
			t.Fatal(err)
		}
		cert, key = target, target
	}
	pair, err := tls.LoadX509KeyPair(b.agent.Path(cert), b.agent.Path(key))
	if err != nil {
		t.Fatal(err)
	}
	return asker{b: b, pair: &pair}
}

// ask returns the answer's status and body.
func (a asker) ask(t *testing.T, method, path string, body any) (int, string) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if a.pair != nil {
		config.Certificates = []tls.Certificate{*a.pair}
	}
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(a.b.server.IP.String(), "6443")
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if a.bearer != "" {
		request.Header.Set("Authorization", "Bearer "+a.bearer)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: a.b.agent.Dial, TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text strings.Builder
	if err := answer.Write(&text); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, text.String()
}

// want makes a request and checks the answer.
func (a asker) want(t *testing.T, method, path string, body any, code int, sentence string) {
	t.Helper()
	got, text := a.ask(t, method, path, body)
	if got != code || !strings.Contains(text, sentence) {
		t.Errorf("%s %s is answered %d %s, want %d and %q", method, path, got, text, code, sentence)
	}
}

// paths are all paths for joining with their methods.
var paths = [][2]string{
	{http.MethodPost, join.PathAgent}, {http.MethodPost, join.PathServer}, {http.MethodGet, join.PathCluster},
	{http.MethodGet, join.PathMembers}, {http.MethodPost, join.PathMembers}, {http.MethodGet, join.PathTunnel},
}

func (b *badJoins) nobody(t *testing.T) {
	for _, who := range []asker{{b: b}, {b: b, bearer: "abcdef.0123456789abcdef"}} {
		for _, p := range paths {
			who.want(t, p[0], p[1], nil, http.StatusUnauthorized, "")
		}
	}
}

// mayOnlyJoin tries other requests with an agent's token.
func (b *badJoins) mayOnlyJoin(t *testing.T) {
	who := asker{b: b, bearer: bearer(t, b.agentToken)}
	for _, p := range paths[1:] {
		who.want(t, p[0], p[1], nil, http.StatusForbidden, "")
	}
	for _, path := range []string{
		"/api/v1/nodes", "/api/v1/secrets", "/api/v1/namespaces/kube-system/secrets", "/api/v1/namespaces/kube-system/configmaps", "/metrics",
		"/apis/certificates.k8s.io/v1/certificatesigningrequests", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
	} {
		who.want(t, http.MethodGet, path, nil, http.StatusForbidden, "")
	}
	who.want(t, http.MethodPost, "/apis/certificates.k8s.io/v1/certificatesigningrequests",
		signing(certificatesv1.KubeAPIServerClientKubeletSignerName, newMachine(t, "x", "system:node:x", "system:nodes").csr), http.StatusForbidden, "")
	asker{b: b, bearer: bearer(t, b.serverToken)}.want(t, http.MethodGet, "/api/v1/secrets", nil, http.StatusForbidden, "")
}

// node checks the permissions of an agent's own identity.
func (b *badJoins) node(t *testing.T) {
	who, name := b.as(t, "node"), b.agent.Name
	who.want(t, http.MethodGet, join.PathCluster, nil, http.StatusOK, "10.42.0.0/16")
	for _, p := range [][2]string{paths[1], paths[3], paths[4]} {
		who.want(t, p[0], p[1], nil, http.StatusForbidden, "")
	}
	for _, path := range []string{
		"/api/v1/secrets", "/api/v1/namespaces/kube-system/secrets", "/api/v1/configmaps", "/api/v1/namespaces/default/pods/x/log",
	} {
		who.want(t, http.MethodGet, path, nil, http.StatusForbidden, "")
	}
	who.want(t, http.MethodGet, "/api/v1/pods", nil, http.StatusOK, "PodList") // for network policies
	who.want(t, http.MethodPost, "/api/v1/namespaces/default/pods", &corev1.Pod{}, http.StatusForbidden, "")
	m := newMachine(t, "another", "system:coracle:node:another", "system:coracle:nodes")
	who.want(t, http.MethodPost, join.PathAgent, m.request(), http.StatusForbidden, "node "+name+" cannot have a certificate for node another")
	m = newMachine(t, name, "system:coracle:node:"+name, "system:coracle:nodes")
	who.want(t, http.MethodPost, join.PathAgent, m.request(), http.StatusForbidden, "for the key that it has")

	m.sign(t, who.pair.PrivateKey)
	code, text := who.ask(t, http.MethodPost, join.PathAgent, m.request())
	if code != http.StatusOK {
		t.Fatalf("renewing: %d %s", code, text)
	}
	if strings.Contains(text, "PRIVATE KEY") {
		t.Error("an agent is told a private key")
	}
}

func (b *badJoins) otherMachine(t *testing.T) {
	for _, test := range []struct {
		name, token, path string
		replace           bool
		sentence          string
	}{
		{b.agent.Name, b.agentToken, join.PathAgent, false, "is another machine's (" + b.agent.IP.String() + ")"},
		{b.agent.Name, b.agentToken, join.PathAgent, true, "this token does not allow --replace-node"},
		{b.server.Name, b.agentToken, join.PathAgent, false, "give this machine another name with --node-name"},
		{b.server.Name, b.serverToken, join.PathServer, false, "give this machine another name with --node-name"},
	} {
		m := newMachine(t, test.name, "system:coracle:node:"+test.name, "system:coracle:nodes")
		m.replace = test.replace
		asker{b: b, bearer: bearer(t, test.token)}.want(t, http.MethodPost, test.path, m.request(), http.StatusConflict, test.sentence)
	}
}

func (b *badJoins) version(t *testing.T) {
	who := asker{b: b, bearer: bearer(t, b.agentToken)}
	for v, sentence := range map[string]string{
		"v1.99.0+coracle.1": "a node must not be newer than its servers",
		"v1.2.0":            "too far apart",
		"new":               "is not a version of coracle",
	} {
		m := newMachine(t, "skewed", "system:coracle:node:skewed", "system:coracle:nodes")
		m.version = v
		code, text := who.ask(t, http.MethodPost, join.PathAgent, m.request())
		if code == http.StatusOK || !strings.Contains(text, sentence) {
			t.Errorf("%s: %d %s", v, code, text)
		}
	}
}

func (b *badJoins) otherName(t *testing.T) {
	who := asker{b: b, bearer: bearer(t, b.agentToken)}
	m := newMachine(t, "mine", "system:coracle:node:"+b.agent.Name, "system:coracle:nodes")
	who.want(t, http.MethodPost, join.PathAgent, m.request(), http.StatusBadRequest, "the certificate request is for")
	m = newMachine(t, "mine", "system:coracle:node:mine", "system:masters")
	who.want(t, http.MethodPost, join.PathAgent, m.request(), http.StatusBadRequest, "the certificate request is for")
	m = newMachine(t, "../x", "system:coracle:node:../x", "system:coracle:nodes")
	who.want(t, http.MethodPost, join.PathAgent, m.request(), http.StatusBadRequest, "is not a node name")
}

// kubelets requests certificates through Kubernetes with the identities of an agent.
func (b *badJoins) kubelets(t *testing.T) {
	client, err := b.Client(b.server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	own := "system:node:" + b.agent.Name
	foreign := newMachine(t, "", own, "system:nodes")
	foreign.template.IPAddresses = []net.IP{net.ParseIP(b.server.IP.String())}
	foreign.sign(t, foreign.key)
	const client1, serving = certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	for name, test := range map[string]struct {
		as, signer string
		csr        []byte
		sentence   string
	}{
		"replayed by a node":    {"node", client1, newMachine(t, "", "system:node:"+b.server.Name, "system:nodes").csr, "may have one for " + own + " only"},
		"replayed by a kubelet": {"kubelet", client1, newMachine(t, "", "system:node:"+b.server.Name, "system:nodes").csr, "may have one for " + own + " only"},
		"more groups":           {"node", client1, newMachine(t, "", own, "system:masters").csr, "organization"},
		"foreign address":       {"kubelet", serving, foreign.csr, "belongs to the API"},
		"serving, by a node":    {"node", serving, foreign.csr, "is not a node"},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := b.as(t, test.as).ask(t, http.MethodPost, "/apis/certificates.k8s.io/v1/certificatesigningrequests", signing(test.signer, test.csr))
			if code == http.StatusForbidden || code == http.StatusUnprocessableEntity {
				t.Logf("refused at once: %s", text) // by upstream's admission
				return
			}
			if code != http.StatusCreated {
				t.Fatalf("%d %s", code, text)
			}
			awaitDenied(t, client, text, test.sentence)
		})
	}
}

// namesOfOthers requests serving certificates for what a machine says are its addresses, and are others'.
func (b *badJoins) namesOfOthers(t *testing.T) {
	client, err := b.Client(b.server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	neighbour := copyKeys(t, client, b.server, b.agentToken, "neighbour") // it is never Ready
	neighbour.says(t, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "172.30.0.77"})
	impostor := copyKeys(t, client, b.server, b.agentToken, "impostor")
	var said []corev1.NodeAddress
	requests := map[string]string{} // the answers to requests for names and addresses; they are decided at the same time
	for name, address := range map[string]corev1.NodeAddress{
		"an absent neighbour's address": {Type: corev1.NodeInternalIP, Address: "172.30.0.77"},
		"localhost":                     {Type: corev1.NodeHostName, Address: "localhost"},
		"a service's address as a name": {Type: corev1.NodeInternalDNS, Address: "10.43.0.1"},
		"the server's name":             {Type: corev1.NodeInternalDNS, Address: b.server.Name},
		"the server's address":          {Type: corev1.NodeExternalIP, Address: b.server.IP.String()},
	} {
		t.Run(name, func(t *testing.T) {
			wanted := address.Address
			if code := impostor.says(t, append(slices.Clone(said), address)...); code == http.StatusForbidden {
				return // the address is refused at once, so a certificate for it is too
			}
			said = append(said, address)
			m := newMachine(t, "", "system:node:impostor", "system:nodes")
			if ip := net.ParseIP(wanted); ip != nil && address.Type != corev1.NodeInternalDNS {
				m.template.IPAddresses = []net.IP{ip}
			} else {
				m.template.DNSNames = []string{wanted}
			}
			m.sign(t, m.key)
			code, text := impostor.try(t.Context(), b.server, &impostor.kubelet, "", http.MethodPost, signingRequests, signing(certificatesv1.KubeletServingSignerName, m.csr))
			if code != http.StatusCreated {
				t.Fatalf("%d %s", code, text)
			}
			requests[wanted] = text
		})
	}
	for wanted, text := range requests {
		t.Run("denied "+wanted, func(t *testing.T) { awaitDenied(t, client, "\r\n\r\n"+text, wanted) })
	}
	b.server.Coracle("node", "remove", "--force", "impostor")
	b.server.Coracle("node", "remove", "--force", "neighbour")
}

// awaitDenied waits until a certificate request is denied; body is the created object.
func awaitDenied(t *testing.T, client kubernetes.Interface, answer, sentence string) {
	t.Helper()
	_, body, _ := strings.Cut(answer, "\r\n\r\n")
	var made certificatesv1.CertificateSigningRequest
	if err := json.NewDecoder(strings.NewReader(body[strings.IndexByte(body, '{'):])).Decode(&made); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		csr, err := client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), made.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(csr.Status.Conditions) > 0 {
			c := csr.Status.Conditions[0]
			if c.Type != certificatesv1.CertificateDenied || !strings.Contains(c.Message, sentence) {
				t.Errorf("%s: %s, want it denied with %q", c.Type, c.Message, sentence)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("the request was neither approved nor denied")
		}
	}
}

// replaced lets another machine take the agent's place with a token that allows it.
func (b *badJoins) replaced(t *testing.T) {
	client, err := b.Client(b.server, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	before, err := client.CoreV1().Nodes().Get(t.Context(), b.agent.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, kubelet := b.as(t, "node"), b.as(t, "kubelet") // the kubelet removes its certificate when it is refused
	m := newMachine(t, b.agent.Name, "system:coracle:node:"+b.agent.Name, "system:coracle:nodes")
	m.replace = true
	who := asker{b: b, bearer: bearer(t, b.token("--allow-replace"))}
	who.want(t, http.MethodPost, join.PathAgent, m.request(), http.StatusOK, `"cert":`)
	who.want(t, http.MethodPost, join.PathAgent, m.request(), http.StatusOK, "") // again, like after a crash
	sentence := "node " + b.agent.Name + " was removed from the cluster, or another machine has replaced it"
	hosts.Eventually(t, 5*time.Second, func() error {
		if code, text := node.ask(t, http.MethodGet, join.PathTunnel, nil); code != http.StatusUnauthorized || !strings.Contains(text, sentence) {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	node.want(t, http.MethodGet, join.PathCluster, nil, http.StatusUnauthorized, sentence)
	kubelet.want(t, http.MethodGet, "/api/v1/nodes/"+b.agent.Name, nil, http.StatusUnauthorized, "")

	// The old machine must not create its Node again, although its kubelet has a valid certificate.
	if err := b.Running(b.agent).Wait(2 * time.Minute); err == nil || !strings.Contains(b.Running(b.agent).Log(), sentence) {
		t.Errorf("the agent does not learn of it: %v", err)
	}
	if after, err := client.CoreV1().Nodes().Get(t.Context(), b.agent.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the old node is there (%t): %v", after.UID == before.UID, err)
	}
}

// signing is a CertificateSigningRequest.
func signing(signer string, csr []byte) *certificatesv1.CertificateSigningRequest {
	auth := certificatesv1.UsageClientAuth
	if signer == certificatesv1.KubeletServingSignerName {
		auth = certificatesv1.UsageServerAuth
	}
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "bad-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: csr, SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, auth},
		},
	}
}

// clock lets a machine join a server whose clock is a day ahead or behind; the server has the cluster's certificate.
func (b *badJoins) clock(t *testing.T) {
	pair, err := tls.LoadX509KeyPair(b.server.Data("server/pki/apiserver.crt"), b.server.Data("server/pki/apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(b.server.Data("server/pki/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(ca)
	pair.Certificate = append(pair.Certificate, block.Bytes)
	for name, off := range map[string]time.Duration{"a day behind": -24 * time.Hour, "a day ahead": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := hosts.New(t, b.Wire, "late", hosts.Options{})
			var listener net.Listener
			err := hosts.On(h.PID(), func() (err error) {
				listener, err = net.Listen("tcp", "127.0.0.1:7443")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{
				TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
					w.WriteHeader(http.StatusUnauthorized)
				}),
			}
			go server.ServeTLS(listener, "", "")
			defer server.Close()
			h.Run("sh", "-c", "mkdir -p /etc/coracle && cat > /etc/coracle/token <<EOF\n"+b.agentToken+"\nEOF")
			s := h.StartAgent("--server=https://127.0.0.1:7443", "--token-file=/etc/coracle/token")
			if err := s.Wait(2 * time.Minute); err == nil {
				t.Error("it did not fail")
			}
			if log := s.Log(); !strings.Contains(log, "set the wrong one right") || !strings.Contains(log, time.Now().Add(off).UTC().Format(time.DateOnly)) {
				t.Errorf("it says:\n%s", log)
			}
		})
	}
}
