package docker

import (
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/engine"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }

//go:embed pods.yaml
var pods string

// TestImage tests one image on one engine, from the first start to a cluster of several containers.
func TestImage(t *testing.T) {
	slots.Take(t)
	e := start(t)
	t.Run("refusals", func(t *testing.T) { refusals(t, e) })
	t.Run("server", func(t *testing.T) { server(t, e) })
	t.Run("dockerfile", func(t *testing.T) { dockerfile(t, e) })
	t.Run("recreated", func(t *testing.T) { recreated(t, e) })
	t.Run("compose", func(t *testing.T) { compose(t, e) })
}

// refusals starts containers without something that a node needs: the message names it.
func refusals(t *testing.T, e *engine.Engine) {
	for name, c := range map[string]struct {
		options []string
		want    string
	}{
		"no capabilities": {nil, "lacks the capabilities CAP_SYS_ADMIN"},
		"a filter":        {[]string{"--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cap-add", "SYS_PTRACE"}, "seccomp=unconfined"},
	} {
		t.Run(name, func(t *testing.T) {
			n := runWith(t, e, "refused", c.options, []string{"server"})
			if code := n.e.Docker("wait", n.name); code == "0" {
				t.Error("it ended with exit status 0")
			}
			if got := e.Logs(n.name); !strings.Contains(got, c.want) {
				t.Errorf("it says %s", got)
			}
		})
	}
}

// server tests the life of one container, with an address that Docker assigns on a user-defined network.
func server(t *testing.T, e *engine.Engine) {
	e = e.For(t)
	e.Docker("network", "create", "--subnet", "172.31.0.0/24", "lan")
	e.Docker("run", "--detach", "--name", "neighbour", "--network", "lan", "--entrypoint", "/usr/lib/coracle/busybox", "coracle", "sleep", "100000")
	since := time.Now()
	n := run(t, e, "one", "--network", "lan", "--publish", "6443:6443", "--publish", "30080:30080", "--volume", "/kubeconfigs:/out",
		"--env", "CORACLE_KUBECONFIG_OUTPUT=/out/kubeconfig", "--env", "CORACLE_KUBECONFIG_MODE=0640", "--", "server")
	t.Logf("docker run to ready: %s", n.awaitReady(since).Round(10*time.Millisecond))
	n.reached()
	hosts.Eventually(t, 3*time.Minute, func() error { return is("health", n.health(), "healthy") })

	n.importImages()
	n.apply(pods)
	n.exec("kubectl", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=300s")
	n.probe(2 * time.Minute)
	n.nodePort()
	n.exec("kubectl", "exec", "plain", "--", "touch", "/disk/mark")
	if got := n.exec("kubectl", "exec", "plain", "--", "nslookup", "neighbour"); !strings.Contains(got, "172.31.0.") {
		t.Errorf("a pod with the host's name servers finds another container by its name: %s", got)
	}
	uid := n.uid()
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"stop and start", func() { n.stop(); e.Docker("start", n.name) }},
		{"kill", func() { e.Docker("kill", n.name); e.Docker("start", n.name) }},
		{"another address", func() { n.stop(); n.move("172.31.0.77"); e.Docker("start", n.name) }},
	} {
		since := time.Now()
		c.do()
		took := n.awaitReady(since)
		n.exec("kubectl", "wait", "--for=condition=Ready", "pod", "client", "plain", "--timeout=300s")
		n.probe(2 * time.Minute)
		t.Logf("%s: node ready after %s, pods after %s", c.name, took.Round(10*time.Millisecond), time.Since(since).Round(10*time.Millisecond))
		if got := n.uid(); got != uid {
			t.Errorf("%s: it is another cluster", c.name)
		}
		n.exec("kubectl", "exec", "plain", "--", "test", "-e", "/disk/mark")
		n.reached()
	}
	if got := n.exec("kubectl", "get", "node", n.name, "--output", "jsonpath={.status.addresses[0].address}"); got != "172.31.0.77" {
		t.Errorf("the node has the address %s", got)
	}
}

// stop stops the container within the time limit of engines.
func (n node) stop() {
	n.t.Helper()
	const most = 10 * time.Second // then an engine kills the container; make bench has the usual time
	since := time.Now()
	n.e.Docker("stop", "--time", "20", n.name)
	took := time.Since(since)
	if n.t.Logf("docker stop: %s", took.Round(10*time.Millisecond)); took > most {
		n.t.Errorf("docker stop took %s, more than %s", took, most)
	}
	if got := n.e.Docker("inspect", "--format", "{{.State.ExitCode}}", n.name); got != "0" {
		n.t.Errorf("it ended with exit status %s", got)
	}
}

// move gives the container another address.
func (n node) move(address string) {
	n.t.Helper()
	n.e.Docker("network", "disconnect", "lan", n.name)
	n.e.Docker("network", "connect", "--ip", address, "lan", n.name)
}

// uid identifies the cluster.
func (n node) uid() string {
	n.t.Helper()
	return n.exec("kubectl", "get", "namespace", "kube-system", "--output", "jsonpath={.metadata.uid}")
}

func (n node) health() string {
	n.t.Helper()
	return n.e.Docker("inspect", "--format", "{{.State.Health.Status}}", n.name)
}

// reached uses the API at the published port, from the engine's host, with both kubeconfigs.
func (n node) reached() {
	n.t.Helper()
	h := n.e.Host
	printed := n.exec("coracle", "kubeconfig", "--server", "https://localhost:6443")
	if err := os.WriteFile(h.Path("/tmp/printed"), []byte(printed), 0o600); err != nil {
		n.t.Fatal(err)
	}
	for _, file := range []string{"/tmp/printed", "/kubeconfigs/kubeconfig"} {
		if got := h.Coracle("kubectl", "--kubeconfig", file, "get", "nodes", "--output", "name"); strings.TrimSpace(got) != "node/"+n.name {
			n.t.Errorf("with %s the nodes are %s", file, got)
		}
	}
	if info, err := os.Stat(h.Path("/kubeconfigs/kubeconfig")); err != nil || info.Mode().Perm() != 0o640 {
		n.t.Errorf("the kubeconfig that was asked for: %v, %v", info, err)
	}
}

// nodePort asks for a NodePort from the engine's host, at the container's address and where it is published. To a policy the host is somebody from outside.
func (n node) nodePort() {
	n.t.Helper()
	address := n.exec("kubectl", "get", "node", n.name, "--output", "jsonpath={.status.addresses[0].address}")
	for _, place := range []string{address, "127.0.0.1"} {
		hosts.Eventually(n.t, time.Minute, func() error {
			name, err := n.e.Host.Get("http://" + place + ":30080/hostname")
			if err == nil && !strings.HasPrefix(name, "web-") {
				err = fmt.Errorf("%q answers at %s", name, place)
			}
			return err
		})
	}
	n.apply(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web},
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}}`)
	hosts.Eventually(n.t, time.Minute, func() error {
		if _, err := n.e.Host.Get("http://" + address + ":30080/hostname"); err == nil {
			return errors.New("the policy lets the engine's host in")
		}
		return nil
	})
	n.probe(time.Minute)
	n.exec("kubectl", "delete", "networkpolicy", "web")
}

// recreated removes a container and makes another one with its volume, like an upgrade to a newer image.
func recreated(t *testing.T, e *engine.Engine) {
	e = e.For(t)
	e.Docker("volume", "create", "kept")
	volume := []string{"--volume", "kept:/var/lib/coracle"}
	first := run(t, e, "first", append(volume, "--", "server")...)
	first.awaitReady(time.Now())
	uid := first.uid()
	first.exec("kubectl", "create", "configmap", "mark")
	e.Docker("rm", "--force", "--volumes", "first")
	second := run(t, e, "second", append(volume, "--", "server", "--tls-san", "edge.example.org")...)
	second.awaitReady(time.Now())
	second.exec("kubectl", "get", "configmap", "mark")
	if got := second.uid(); got != uid {
		t.Error("it is another cluster")
	}
	hosts.Eventually(t, 2*time.Minute, func() error {
		return is("nodes", second.exec("kubectl", "get", "nodes", "--output", "name"), "node/second")
	})
	if out, err := second.try("ls", "/var/lib/coracle/data"); err == nil {
		t.Errorf("the payload was copied to the volume: %s", out)
	}
	second.named("edge.example.org")
	second.loads(filepath.Base(archive(t)))
}

// named fails the test unless the API's certificate is valid for a name.
func (n node) named(want string) {
	n.t.Helper()
	address := n.e.Docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", n.name)
	raw, err := n.e.Host.Dial(n.t.Context(), "tcp", net.JoinHostPort(address, "6443"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) // the test checks the certificate itself
	if err := conn.HandshakeContext(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	for _, name := range []string{want, "localhost", "127.0.0.1", address, n.name} {
		if err := conn.ConnectionState().PeerCertificates[0].VerifyHostname(name); err != nil {
			n.t.Error(err)
		}
	}
}

// loads imports the image itself into containerd, which reads the archive differently from Docker.
func (n node) loads(name string) {
	n.t.Helper()
	data, err := os.ReadFile(archive(n.t))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.e.Host.Data("images", name), data, 0o644); err != nil {
		n.t.Fatal(err)
	}
	defer os.Remove(n.e.Host.Data("images", name))
	imported := regexp.MustCompile(`docker.io/library/coracle:\S+`).FindString(n.exec("coracle", "images", "import", "/images/"+name))
	if imported == "" {
		n.t.Fatal("containerd imports no such image")
	}
	n.apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "itself"}, "spec": {"restartPolicy": "Never",
		"containers": [{"name": "itself", "image": %q, "imagePullPolicy": "Never", "args": ["version"]}]}}`, imported))
	hosts.Eventually(n.t, 2*time.Minute, func() error {
		return is("the pod's phase", n.exec("kubectl", "get", "pod", "itself", "--output", "jsonpath={.status.phase}"), "Succeeded")
	})
}
