package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// identity are the credentials and ids of a cluster that another one must not have.
type identity struct {
	uid    string // of kube-system
	ca     string // of the cluster's CA
	token  string // of a service account, as a pod has it
	stored string // of a service account, in a Secret
}

// TestFork makes two clusters from a snapshot of a third, which continues to run. They have all its data except its
// credentials.
func TestFork(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	before := l.state()
	args := []string{"base", "--nodes", "2"}
	for _, image := range hosts.Images(t) {
		args = append(args, "--image", "/var/lib/coracle/images/"+filepath.Base(image))
	}
	l.up(args...)
	l.applyUp("base", manifest(t, "fork.yaml"))
	l.on("base", "rollout", "status", "daemonset/web", "--timeout=3m")
	names := strings.Fields(l.on("base", "get", "pods", "-o", "jsonpath={.items[*].metadata.name}"))
	for _, pod := range names {
		l.on("base", "exec", pod, "--", "sh", "-c", "echo kept > /data/file; echo kept > /claim/file")
	}
	expect(t, "eyJ", func() (string, error) { return l.stored("base") })
	pods := l.on("base", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
	base := l.identity("base")

	out, err := l.Command(binary, "snapshot-cluster", "base", "--to", "sealed").CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("holds no key", func(t *testing.T) {
		found, _ := l.Try("sh", "-c", "cd /srv/clusters/.snapshots/sealed && rm -rf /tmp/sealed; cp -a . /tmp/sealed; cd /tmp/sealed; rm -r */data/node/containerd; find . -name '*.key' -o -name '*token*' -o -name '*.kubeconfig'; grep -rlE 'PRIVATE KEY' . || true; rm -r /tmp/sealed")
		if found != "" {
			t.Errorf("found %s", found)
		}
	})
	if got := l.on("base", "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"); got != pods {
		t.Errorf("pods of the cluster were %s and are %s", pods, got)
	}

	all := map[string]identity{"base": base}
	for _, name := range []string{"one", "two"} {
		began := time.Now()
		t.Logf("%s", l.up(name, "--from", "sealed"))
		l.on(name, "rollout", "status", "daemonset/web", "--timeout=3m")
		t.Logf("%s: everything rolled out after %.1f s", name, time.Since(began).Seconds())
		l.forked(t, name, pods)
		all[name] = l.identity(name)
	}
	l.strangers(t, all)
	if got := l.identity("base"); got.uid != base.uid || got.ca != base.ca {
		t.Error("the cluster itself is another one")
	}
	l.Run("rm", "-rf", "/root/.kube/cache") // kubectl's
	l.Coracle("down", "--all")
	if err := contains("list", l.Coracle("snapshot-cluster", "list"), "sealed   base   2"); err != nil {
		t.Error(err)
	}
	l.Coracle("snapshot-cluster", "rm", "sealed")
	l.compare(before)
}

// on runs kubectl for a cluster.
func (l laptop) on(cluster string, args ...string) string {
	l.t.Helper()
	return l.Coracle(append([]string{"kubectl", "--context", "coracle-" + cluster}, args...)...)
}

func (l laptop) stored(cluster string) (string, error) {
	return l.Try(binary, "kubectl", "--context", "coracle-"+cluster, "get", "secret", "robot", "-o", "go-template={{.data.token | base64decode}}")
}

// identity reads the ids of a cluster and tokens of it.
func (l laptop) identity(cluster string) (id identity) {
	l.t.Helper()
	id.uid = l.on(cluster, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	id.ca = l.on(cluster, "config", "view", "--raw", "--minify", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}")
	id.token = l.on(cluster, "exec", "ds/web", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
	var err error
	if id.stored, err = l.stored(cluster); err != nil {
		l.t.Fatal(err)
	}
	return id
}

// forked checks that a cluster has the content of its origin.
func (l laptop) forked(t *testing.T, cluster, pods string) {
	t.Helper()
	if got := l.on(cluster, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"); got != pods {
		t.Errorf("%s: pods are %s, want %s", cluster, got, pods)
	}
	for _, pod := range strings.Fields(l.on(cluster, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}")) {
		if got := l.on(cluster, "exec", pod, "--", "cat", "/data/file", "/claim/file"); got != "kept\nkept\n" {
			t.Errorf("%s: the volumes of %s hold %q", cluster, pod, got)
		}
	}
	if got := l.on(cluster, "get", "secret", "password", "-o", "jsonpath={.data.word}"); got != "c2VzYW1l" {
		t.Errorf("%s: the user's Secret is %q", cluster, got)
	}
	// Its Secrets are encrypted, with a key of its own.
	node := l.clusters()[cluster].Nodes[0]
	out := l.Run("nsenter", "-t", strconv.Itoa(node.PID), "-a", "/usr/local/bin/coracle", "secrets-encrypt", "status")
	if !strings.Contains(out, "Enabled") || !strings.Contains(out, "key2") || strings.Contains(out, "key1") || strings.Contains(out, "not encrypted") {
		t.Errorf("%s: %s", cluster, out)
	}
	for _, n := range l.clusters()[cluster].Nodes {
		expect(t, "web-", func() (string, error) { return l.Get(fmt.Sprintf("http://%s:30080/hostname", n.IP)) })
		if got := l.on(cluster, "get", "node", n.Name, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`); got != n.IP.String() {
			t.Errorf("%s: node %s has address %s, want %s", cluster, n.Name, got, n.IP)
		}
	}
	// Pods trust the API's certificate.
	id := l.identity(cluster)
	expect(t, id.ca, func() (string, error) {
		return l.Try(binary, "kubectl", "--context", "coracle-"+cluster, "exec", "ds/web", "--", "base64", "-w0", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	})
}

// strangers tries the credentials of each cluster at all others.
func (l laptop) strangers(t *testing.T, all map[string]identity) {
	t.Helper()
	uids, cas := map[string]bool{}, map[string]bool{}
	for name, id := range all {
		uids[id.uid], cas[id.ca] = true, true
		for other := range all {
			api := "https://" + l.clusters()[other].API().String()
			want := http.StatusUnauthorized
			if other == name {
				want = http.StatusForbidden // authenticated, but without permission
			}
			for kind, token := range map[string]string{"a pod's": id.token, "a Secret's": id.stored} {
				if got := l.answer(api+"/api/v1/namespaces/kube-system/secrets", token); got != want {
					t.Errorf("with %s token of %s the API of %s answers %d, want %d", kind, name, other, got, want)
				}
			}
			out, err := l.Try(binary, "kubectl", "--context", "coracle-"+name, "--insecure-skip-tls-verify", "--server", api, "get", "nodes")
			if (err == nil) != (other == name) {
				t.Errorf("with the kubeconfig of %s the API of %s answers %v: %s", name, other, err, out)
			}
			out, err = l.Try(binary, "kubectl", "--context", "coracle-"+name, "--server", api, "get", "nodes")
			if other != name && (err == nil || !strings.Contains(fmt.Sprint(out, err), "x509: certificate signed by unknown authority")) {
				t.Errorf("clients of %s take %s for it: %v", name, other, err)
			}
		}
	}
	if len(uids) != len(all) || len(cas) != len(all) {
		t.Errorf("clusters have identities in common: %v", uids)
	}
	l.bootstrapTokens(t, all)
}

// answer is the status of an API's answer to a token.
func (l laptop) answer(url, token string) int {
	l.t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: l.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // which server it is is another question
	}}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	response, err := client.Do(request)
	if err != nil {
		l.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// bootstrapTokens checks that a token of one cluster cannot be used to join another.
func (l laptop) bootstrapTokens(t *testing.T, all map[string]identity) {
	t.Helper()
	seen := map[string]string{}
	for name := range all {
		var list struct {
			Items []struct{ Data map[string]string }
		}
		if err := json.Unmarshal([]byte(l.on(name, "get", "secrets", "-n", "kube-system", "--field-selector=type=bootstrap.kubernetes.io/token", "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == 0 {
			t.Errorf("%s has no token", name)
		}
		for _, item := range list.Items {
			if other := seen[item.Data["token-secret"]]; other != "" {
				t.Errorf("%s and %s share a token to join with", name, other)
			}
			seen[item.Data["token-secret"]] = name
		}
	}
}

// TestForkServers makes a cluster with three servers from a snapshot of a cluster with three.
func TestForkServers(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	l.up("base", "--servers", "3")
	l.on("base", "create", "configmap", "kept")
	l.Coracle("snapshot-cluster", "base")
	l.Coracle("down", "base")
	l.up("fork", "--from", "base")
	l.on("fork", "get", "configmap", "kept")
	if out, err := l.tryUp("small", "--from", "base", "--servers", "1"); err == nil || !strings.Contains(out, "has as many servers") {
		t.Errorf("%v: %s", err, out)
	}
	expect(t, "3", func() (string, error) {
		return l.Try("sh", "-c", binary+" up exec fork base-server-2 coracle etcd members | grep -cE 'leader|voter'")
	})
	l.Coracle("down", "fork")
	l.Coracle("snapshot-cluster", "rm", "base")
}
