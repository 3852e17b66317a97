package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// TestKubelets joins upstream's kubelets of earlier versions to a server, with Debian's containerd, as docs/joining.md says, runs a pod on each, and
// removes the node.
func TestKubelets(t *testing.T) {
	dir := os.Getenv("CORACLE_TEST_KUBELETS")
	if dir == "" {
		t.Skip("CORACLE_TEST_KUBELETS names no directory with kubelets: scripts/faults has scripts/kubelets build them")
	}
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Images: true, ServerArgs: []string{"--flannel-backend=host-gw"}})
	hosts.Eventually(t, time.Minute, func() error { // the namespace gets its service account soon
		_, err := c.Servers[0].TryCoracle("kubectl", "run", "local", "--image="+agnhost, "--command", "--", "/agnhost", "netexec")
		return err
	})
	class := verdicts.Class{Name: "versions", Kinds: []string{"kubelet-1.34", "kubelet-1.35", "kubelet-1.36"}, Short: 1, Long: 1}
	class.Each(t, func(t *testing.T, kind string, seed uint64, row *verdicts.Row) {
		files, err := filepath.Glob(filepath.Join(dir, strings.TrimPrefix(kind, "kubelet-")+".*[0-9]"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s has not one kubelet for %s: %v %v", dir, kind, files, err)
		}
		f := newForeign(t, c.For(t), fmt.Sprintf("%s-%d", strings.ReplaceAll(kind, ".", "-"), seed))
		began := time.Now()
		f.join(files[0])
		row.Seconds = time.Since(began).Seconds()
		if got := f.server.Kubectl("get", "node", f.Name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"); got != "v"+filepath.Base(files[0]) {
			t.Errorf("kubelet %s runs on %s", got, f.Name)
		}
		f.work()
		f.leave()
		row.Seen = "runs pods, removed"
	})
}

const agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.66.1"

// foreign is a host with a kubelet that is not coracle's.
type foreign struct {
	*hosts.Host
	t      *testing.T
	server *hosts.Host
}

func newForeign(t *testing.T, c *hosts.Cluster, name string) foreign {
	t.Helper()
	f := foreign{hosts.New(t, c.Wire, name, hosts.Options{Disks: []string{"/var/lib/containerd"}}), t, c.Servers[0]}
	f.write("/etc/containerd/config.toml", containerdConfig)
	f.daemon("containerd")
	hosts.Eventually(t, time.Minute, func() error {
		_, err := f.Try("ctr", "version")
		return err
	})
	for _, image := range append(hosts.Images(t), f.server.Path("/var/lib/coracle/bin/images/pause.tar")) {
		f.load(image)
	}
	return f
}

// daemon runs a program until the host is removed, and prints the end of its log if the test fails.
func (f foreign) daemon(name string, args ...string) {
	f.t.Helper()
	log, err := os.Create(filepath.Join(f.t.TempDir(), filepath.Base(name)+".log"))
	if err != nil {
		f.t.Fatal(err)
	}
	cmd := f.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		f.Kill()
		_ = cmd.Wait()
		log.Close()
		if data, _ := os.ReadFile(log.Name()); f.t.Failed() {
			f.t.Logf("log of %s on %s:\n%s", name, f.Name, data[max(0, len(data)-8000):])
		}
	})
}

func (f foreign) write(path, content string) {
	f.t.Helper()
	if err := os.MkdirAll(f.Path(filepath.Dir(path)), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.Path(path), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// load imports an archive of an image into containerd.
func (f foreign) load(archive string) {
	f.t.Helper()
	in, err := os.Open(archive)
	if err != nil {
		f.t.Fatal(err)
	}
	defer in.Close()
	cmd := f.Command("ctr", "--namespace=k8s.io", "images", "import", "-")
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("importing %s: %v: %s", archive, err, out)
	}
}

// join starts a kubelet with a bootstrap token, permits and approves it as an administrator does, and connects its pods to those of the server's node.
func (f foreign) join(kubelet string) {
	f.t.Helper()
	permission, err := os.ReadFile("../../docs/examples/kubelet.yaml")
	if err != nil {
		f.t.Fatal(err)
	}
	f.server.Apply(strings.ReplaceAll(string(permission), "NAME", f.Name))
	f.write("/etc/kubernetes/ca.crt", f.server.Kubectl("get", "configmap", "kube-root-ca.crt", "-o", `jsonpath={.data.ca\.crt}`))
	f.write("/etc/kubernetes/bootstrap.conf", strings.ReplaceAll(bootstrapConfig, "SERVER", f.server.IP.String()))
	f.write("/etc/kubernetes/kubelet.yaml", kubeletConfig)
	own := f.Path("/usr/local/bin/kubelet")
	if out, err := exec.Command("cp", kubelet, own).CombinedOutput(); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	f.daemon("kubelet", "--config=/etc/kubernetes/kubelet.yaml", "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf")
	hosts.Eventually(f.t, time.Minute, func() error {
		requests := f.server.Kubectl("get", "csr", "-o", `jsonpath={range .items[?(@.spec.username=="system:bootstrap:abcdef")]}{.metadata.name} {.status.conditions}{"\n"}{end}`)
		for line := range strings.Lines(requests) {
			if words := strings.Fields(line); len(words) == 1 { // it has no decision yet
				f.server.Kubectl("certificate", "approve", words[0])
				return nil
			}
		}
		return fmt.Errorf("the kubelet has not asked for a certificate: %q", requests)
	})
	var subnet string
	hosts.Eventually(f.t, time.Minute, func() (err error) {
		subnet, err = f.server.TryCoracle("kubectl", "get", "node", f.Name, "-o", "jsonpath={.spec.podCIDR}")
		if err == nil && subnet == "" {
			err = fmt.Errorf("node %s has no subnet", f.Name)
		}
		return err
	})
	f.write("/etc/cni/net.d/10-bridge.conflist", strings.ReplaceAll(bridgeConfig, "SUBNET", subnet))
	f.Run("ip", "route", "add", f.server.Kubectl("get", "node", f.server.Name, "-o", "jsonpath={.spec.podCIDR}"), "via", f.server.IP.String())
	f.server.Kubectl("annotate", "node", f.Name, "flannel.alpha.coreos.com/kube-subnet-manager=true", "flannel.alpha.coreos.com/backend-type=host-gw",
		"flannel.alpha.coreos.com/backend-data=null", "flannel.alpha.coreos.com/public-ip="+f.IP.String())
	f.server.Kubectl("wait", "node/"+f.Name, "--for=condition=Ready", "--timeout=2m")
}

// work runs a pod and reaches it in all ways that there are.
func (f foreign) work() {
	f.t.Helper()
	f.server.Kubectl("run", f.Name, "--image="+agnhost, "--overrides", `{"spec": {"nodeName": "`+f.Name+`", "terminationGracePeriodSeconds": 0}}`,
		"--command", "--", "/agnhost", "netexec")
	f.server.Kubectl("wait", "pod/local", "pod/"+f.Name, "--for=condition=Ready", "--timeout=2m")
	if got := f.server.Kubectl("exec", f.Name, "--", "hostname"); strings.TrimSpace(got) != f.Name {
		f.t.Errorf("exec says %q", got)
	}
	hosts.Eventually(f.t, 10*time.Second, func() error { // the log is written as it comes
		got, err := f.server.TryCoracle("kubectl", "logs", f.Name)
		if err == nil && !strings.Contains(got, "8080") {
			err = fmt.Errorf("its log is %q", got)
		}
		return err
	})
	for _, way := range [][2]string{{"local", f.Name}, {f.Name, "local"}} {
		ip := f.server.Kubectl("get", "pod", way[1], "-o", "jsonpath={.status.podIP}")
		hosts.Eventually(f.t, 20*time.Second, func() error { // the route of the annotations comes with a watch
			_, err := f.server.TryCoracle("kubectl", "exec", way[0], "--", "/agnhost", "connect", "--timeout=3s", ip+":8080")
			return err
		})
	}
	f.server.Kubectl("delete", "pod", f.Name)
}

// leave removes the node, whose certificate is refused from then on.
func (f foreign) leave() {
	f.t.Helper()
	ask := func() string {
		return f.Run("curl", "--silent", "--cacert", "/etc/kubernetes/ca.crt", "--cert", "/var/lib/kubelet/pki/kubelet-client-current.pem",
			"--output", "/dev/null", "--write-out", "%{http_code}", "https://"+f.server.IP.String()+":6443/api/v1/nodes/"+f.Name)
	}
	if code := ask(); code != "200" {
		f.t.Errorf("the kubelet's certificate gets %s", code)
	}
	f.server.Coracle("node", "remove", f.Name, "--force")
	if code := ask(); code != "401" {
		f.t.Errorf("the certificate of a node that was removed gets %s", code)
	}
}

const (
	containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + version.PauseImage + `"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
`
	bootstrapConfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://SERVER:6443', certificate-authority: /etc/kubernetes/ca.crt}}]
users: [{name: u, user: {token: abcdef.0123456789abcdef}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`
	kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: /etc/kubernetes/ca.crt}, webhook: {enabled: true}, anonymous: {enabled: false}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
clusterDNS: [10.43.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
failSwapOn: false
rotateCertificates: true
serverTLSBootstrap: true
`
	bridgeConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true,
"ipam": {"type": "host-local", "ranges": [[{"subnet": "SUBNET"}]]}}]}
`
)
