package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestDualStack runs a cluster of both address families on a host that has both.
func TestDualStack(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "solo")
	h.Run("ip", "-6", "addr", "add", "fd00:30::2/64", "dev", "eth0", "nodad")
	s := h.Start("--node-ip=172.30.0.2,fd00:30::2", "--cluster-cidr=10.42.0.0/16,fd00:42::/56", "--service-cidr=10.43.0.0/16,fd00:43::/112",
		"--gateway-http3", "--gateway-proxy-protocol=fd00:30::2", "--log-gateway-requests", "--vip="+apiAddress.String()+","+sixthAPI.String())
	waitReady(t, h)
	h.Apply(manifest(t, "families.yaml", "${POLICY}", "RequireDualStack"))
	h.Kubectl("wait", "--for=condition=Ready", "pod/server", "pod/client", "--timeout=3m")
	ips := h.Kubectl("get", "pod", "server", "-o", "jsonpath={.status.podIPs[*].ip}")
	clusterIPs := h.Kubectl("get", "service", "server", "-o", "jsonpath={.spec.clusterIPs[*]}")
	if len(strings.Fields(ips)) != 2 || len(strings.Fields(clusterIPs)) != 2 {
		t.Fatalf("pod addresses %q, service addresses %q", ips, clusterIPs)
	}
	for _, ip := range append(strings.Fields(ips), strings.Fields(clusterIPs)...) {
		reachable(t, h, netip.MustParseAddr(ip))
	}
	for kind, want := range map[string]string{"a": strings.Fields(clusterIPs)[0], "aaaa": strings.Fields(clusterIPs)[1]} {
		expect(t, want, func() (string, error) {
			return inClient(h, "nslookup -type="+kind+" server.default.svc.cluster.local")
		})
	}
	for _, vip := range []netip.Addr{apiAddress, sixthAPI} {
		config := h.RESTConfig()
		config.Host = "https://" + netip.AddrPortFrom(vip, 6443).String()
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil {
			t.Errorf("the API at %s: %v", vip, err)
		}
	}
	testGatewaySettings(t, h, s)
}

// TestIPv6Only runs a cluster on a host that has IPv4 only on loopback.
func TestIPv6Only(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	h := hosts.New(t, hosts.NewWire(t, netip.MustParsePrefix("fd00:30::/64")), "solo", hosts.Options{})
	h.CopyImages()
	h.Start("--cluster-cidr=fd00:42::/56", "--service-cidr=fd00:43::/112")
	waitReady(t, h)
	h.Apply(manifest(t, "families.yaml", "${POLICY}", "SingleStack"))
	h.Kubectl("wait", "--for=condition=Ready", "pod/server", "pod/client", "--timeout=3m")
	ip := h.Kubectl("get", "service", "server", "-o", "jsonpath={.spec.clusterIP}")
	reachable(t, h, netip.MustParseAddr(ip))
	expect(t, ip, func() (string, error) { return inClient(h, "nslookup -type=aaaa server.default.svc.cluster.local") })
}

// reachable checks that the pod "client" gets an answer of the pod "server" at the address.
func reachable(t *testing.T, h *hosts.Host, ip netip.Addr) {
	t.Helper()
	expect(t, "server", func() (string, error) {
		return inClient(h, "probe get http://"+netip.AddrPortFrom(ip, 8080).String()+"/hostname")
	})
}

// TestBackends runs the other backends of the pod network.
func TestBackends(t *testing.T) {
	t.Parallel()
	t.Run("host-gw", func(t *testing.T) {
		slots.Take(t)
		h, _ := newCluster(t, "--flannel-backend=host-gw")
		startSleepers(t, h)
		if out, err := h.Try("ip", "link", "show", "flannel.1"); err == nil {
			t.Errorf("there is a vxlan link: %s", out)
		}
	})
	t.Run("none", func(t *testing.T) {
		slots.Take(t)
		h := newHost(t, "solo")
		h.Start("--flannel-backend=none")
		h.Coracle("wait", "--for=api", "--timeout=3m")
		if _, err := os.Stat(h.Path("/etc/cni/net.d/10-coracle.conflist")); err == nil {
			t.Error("a CNI configuration was written although the user brings one")
		}
		// A plugin of the user, in the standard directories.
		h.Run("sh", "-c", "mkdir -p /opt/cni/bin /etc/cni/net.d && for p in bridge host-local loopback; do ln -sf /var/lib/coracle/bin/coracle-cni /opt/cni/bin/$p; done")
		own := `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"bridge","bridge":"own0","isGateway":true,"ipMasq":false,
			"ipam":{"type":"host-local","ranges":[[{"subnet":"10.99.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`
		if err := os.WriteFile(h.Path("/etc/cni/net.d/10-own.conflist"), []byte(own), 0o600); err != nil {
			t.Fatal(err)
		}
		waitReady(t, h)
		startSleepers(t, h)
		pod := h.Kubectl("get", "pods", "-l", "app=sleepers", "-o", "jsonpath={.items[0].metadata.name}")
		expect(t, "10.43.0.1", func() (string, error) {
			return h.TryCoracle("kubectl", "exec", pod, "--", "nslookup", "kubernetes.default.svc.cluster.local")
		})
	})
}

// TestSettings sets every kind of setting and checks its effect.
func TestSettings(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "solo")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(h.Path(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.Path(path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("/etc/coracle/config.yaml", "node-name: boat\ntls-san: [one.test]\nnode-label: [from=file]\ncluster-domain: lake.test\n")
	write("/etc/coracle/config.yaml.d/10-more.yaml", "tls-san+: [two.test]\nnode-taint: [quiet=yes:PreferNoSchedule]\n")
	write("/etc/coracle/kubelet.d/10-pods.conf", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 42\n")
	write("/root/audit.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	write("/root/encryption.yaml", `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [{kms: {apiVersion: v2, name: vault, endpoint: 'unix://`+kmsSocket+`', timeout: 3s}}, {identity: {}}]}]
`)
	plugin := newKMSPlugin(t)
	plugin.start(t, h)
	defer func() { plugin.stop() }()
	write("/root/scheduler.yaml", "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: default-scheduler}, {schedulerName: second}]\n")
	args := []string{"--https-listen-port=7443", "--write-kubeconfig-mode=0640", "--audit-policy-file=/root/audit.yaml",
		"--encryption-provider-config=/root/encryption.yaml", "--kube-scheduler-config=/root/scheduler.yaml",
		"--kube-apiserver-arg=max-requests-inflight=123", "--kubelet-arg=pods-per-core=21", "--log-format=json",
		"--enable-admission-plugins=AlwaysPullImages", "--pod-security=baseline", "--node-external-ip=192.0.2.7", "--service-node-port-range=31000-31100"}
	server := h.Start(args...)
	waitReady(t, h)

	node := h.Kubectl("get", "node", "boat", "-o", "json")
	for _, want := range []string{`"from": "file"`, `"quiet"`, `"192.0.2.7"`, `"pods": "42"`} {
		if err := contains("the node", node, want); err != nil {
			t.Error(err)
		}
	}
	sans := servingNames(t, h, "127.0.0.1:7443")
	for _, want := range []string{"one.test", "two.test", "kubernetes.default.svc.lake.test", "192.0.2.7"} {
		if err := contains("the serving certificate's names", sans, want); err != nil {
			t.Error(err)
		}
	}
	if mode := h.Run("stat", "-c", "%a", "/etc/coracle/kubeconfig.yaml"); mode != "640\n" {
		t.Errorf("the kubeconfig's mode is %s", mode)
	}
	testKMS(t, h, server, plugin, args)
	if audit := h.Run("sh", "-c", "cat $(find /var/lib/coracle /var/log -name '*audit*.log')"); !strings.Contains(audit, "hidden") {
		t.Error("the audit log does not know the secret")
	}
	h.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: pulled}\nspec: {schedulerName: second, containers: [{name: c, image: coracle.test/busybox:1, imagePullPolicy: Never}]}\n")
	hosts.Eventually(t, time.Minute, func() error {
		return contains("the pod", h.Kubectl("get", "pod", "pulled", "-o", "jsonpath={.spec.nodeName} {.spec.containers[0].imagePullPolicy}"), "boat Always")
	})
	for namespace, refused := range map[string]bool{"default": true, "kube-system": false} {
		out, err := h.TryCoracle("kubectl", "-n", namespace, "run", "privileged", "--image=coracle.test/busybox:1", "--privileged", "--dry-run=server")
		if (err != nil && strings.Contains(err.Error(), `violates PodSecurity "baseline:latest"`)) != refused {
			t.Errorf("a privileged pod in %s: %v: %s", namespace, err, out)
		}
	}
	out := h.Coracle("config", "-o", "yaml")
	if err := contains("coracle config", out, "lake.test"); err != nil {
		t.Error(err)
	}
}

// testManifests writes files to the manifests directory of a running cluster.
func testManifests(t *testing.T, h *hosts.Host) {
	file := h.Data("manifests", "mine.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	has := func(name string, want bool) {
		t.Helper()
		hosts.Eventually(t, time.Minute, func() error {
			out := h.Kubectl("get", "configmaps", "-o", "name")
			if want {
				return contains("config maps", out+"\n", "configmap/"+name+"\n")
			}
			if strings.Contains(out+"\n", "configmap/"+name+"\n") {
				return contains("config maps", "still there", name+" gone")
			}
			return nil
		})
	}
	two := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: default}\n"
	write(file, two)
	has("a", true)
	has("b", true)
	write(file, two[:strings.Index(two, "---")])
	has("b", false)
	has("a", true)

	write(h.Data("manifests", "broken.yaml"), "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: [unclosed\n")
	write(h.Data("manifests", "after.yaml"), strings.ReplaceAll(two[:strings.Index(two, "---")], "name: a,", "name: c,"))
	has("c", true)
	hosts.Eventually(t, time.Minute, func() error {
		out, _ := h.TryCoracle("status")
		if err := contains("coracle status", out, "broken.yaml"); err != nil {
			return err
		}
		return contains("coracle status", out, "line ")
	})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	has("a", false)

	// A custom resource beside its definition: the order must not matter.
	write(h.Data("manifests", "boats.yaml"), "apiVersion: coracle.test/v1\nkind: Boat\nmetadata: {name: mine, namespace: default}\nspec: {seats: 1}\n---\n"+manifest(t, "crd.yaml"))
	hosts.Eventually(t, 2*time.Minute, func() error {
		_, err := h.TryCoracle("kubectl", "get", "boat", "mine")
		return err
	})
	remove := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.Remove(h.Data("manifests", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove("boats.yaml", "broken.yaml")
	hosts.Eventually(t, 2*time.Minute, func() error {
		if out := h.Kubectl("get", "crds", "-o", "name"); strings.Contains(out, "boats") {
			return fmt.Errorf("definitions are %s", out)
		}
		return nil
	})
	remove("after.yaml") // last and alone: nothing is pruned if several files disappear at once
	has("c", false)
}

// testCorefile edits the DNS server's configuration in the cluster.
func testCorefile(t *testing.T, h *hosts.Host) {
	h.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: client}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: coracle.test/busybox:1, command: [sleep, '3600']}]}\n")
	h.Kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=3m")
	corefile := h.Kubectl("-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
	edit := func(text string) {
		t.Helper()
		h.Run("sh", "-c", "cat > /tmp/Corefile <<'END'\n"+text+"\nEND")
		h.Run("sh", "-c", binary+" kubectl -n kube-system create configmap coredns --from-file=Corefile=/tmp/Corefile --dry-run=client -o yaml | "+binary+" kubectl apply -f -")
	}
	edit(strings.Replace(corefile, "{", "{\n    hosts {\n        192.0.2.99 harbour.test\n        fallthrough\n    }", 1))
	expect(t, "192.0.2.99", func() (string, error) { return inClient(h, "nslookup -type=a harbour.test") })
	edit("this is not a Corefile {")
	time.Sleep(2 * time.Second) // checks that the broken file does not replace the good one
	expect(t, "192.0.2.99", func() (string, error) { return inClient(h, "nslookup -type=a harbour.test") })
	expect(t, "10.43.0.1", func() (string, error) { return inClient(h, "nslookup kubernetes.default.svc.cluster.local") })
	edit(corefile)
	t.Run("reads no files", func(t *testing.T) { testCorefileReadsNoFiles(t, h.For(t)) })
	h.Kubectl("delete", "pod", "client")
}

// testCommands runs the commands for people.
func testCommands(t *testing.T, h *hosts.Host) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"version"}, []string{"v1.37.1+coracle."}},
		{[]string{"version", "-o", "json"}, []string{"etcd", "containerd", "runc", "flannel", "CoreDNS"}},
		{[]string{"version", "--licenses"}, []string{"Apache License", "k8s.io/kubernetes", "github.com/opencontainers/runc", "GNU GENERAL PUBLIC LICENSE"}},
		{[]string{"status"}, []string{"control-plane", "node", "kube-apiserver", "kubelet", "solo"}},
		{[]string{"status", "-o", "json"}, []string{`"kube-apiserver"`}},
		{[]string{"trace"}, []string{"etcd", "kubelet", "dns"}},
		{[]string{"trace", "--svg", "/tmp/trace.svg"}, nil},
		{[]string{"images", "list"}, []string{"pause", "agnhost"}},
		{[]string{"kubeconfig", "--server", "https://example.test:6443"}, []string{"https://example.test:6443", "certificate-authority-data"}},
		{[]string{"kubeconfig", "--merge"}, nil},
		{[]string{"config"}, []string{"cluster-cidr", "default"}},
		{[]string{"crictl", "version"}, []string{"containerd"}},
		{[]string{"ctr", "version"}, []string{"v2.4.2"}},
		{[]string{"kubectl", "version"}, []string{"v1.37.1+coracle."}},
		{[]string{"completion", "bash"}, []string{"coracle"}},
		{[]string{"completion", "zsh"}, []string{"coracle"}},
		{[]string{"completion", "fish"}, []string{"coracle"}},
		{[]string{"completion", "powershell"}, []string{"coracle"}},
		{[]string{"--help"}, []string{"server", "agent", "reset"}},
		{[]string{"server", "--help"}, []string{"--cluster-cidr", "--disable"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			h := h.For(t)
			out := h.Coracle(c.args...)
			for _, want := range c.want {
				if err := contains("the output", out, want); err != nil {
					t.Error(err)
				}
			}
		})
	}
	h.Run("grep", "-q", "</svg>", "/tmp/trace.svg")
	h.Run("sh", "-c", "ln -s "+binary+" /tmp/kubectl && /tmp/kubectl --kubeconfig /root/.kube/config get nodes")
	h.Run("sh", "-c", "ln -s "+binary+" /tmp/crictl && /tmp/crictl pods")
	h.Run("sh", "-c", "ln -s "+binary+" /tmp/ctr && /tmp/ctr images list -q")
}

// TestImagesImport imports images while coracle runs, in every format: by command as a plain archive, compressed and as
// an OCI layout, and through the images directory.
func TestImagesImport(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	h := hosts.New(t, hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24")), "solo", hosts.Options{})
	h.Start()
	waitReady(t, h)
	archive := func(name string) []byte {
		t.Helper()
		i := slices.IndexFunc(hosts.Images(t), func(path string) bool { return filepath.Base(path) == name })
		if i < 0 {
			t.Fatalf("there is no test image %s", name)
		}
		data, err := os.ReadFile(hosts.Images(t)[i])
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if err := os.WriteFile(h.Path("/root/busybox.tar"), archive("busybox.tar"), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Run("sh", "-c", "cd /root && zstd -q busybox.tar && mkdir layout && tar -xf busybox.tar -C layout")
	for _, form := range []string{"busybox.tar", "busybox.tar.zst", "layout"} {
		h.Coracle("images", "import", "/root/"+form)
		if err := contains("images", h.Coracle("images", "list"), "coracle.test/busybox"); err != nil {
			t.Errorf("%s: %v", form, err)
		}
		startSleepers(t, h)
		h.Kubectl("delete", "deployment", "sleepers", "--cascade=foreground")
		h.Coracle("crictl", "rmi", "coracle.test/busybox:1")
	}
	if err := os.WriteFile(h.Data("images", "agnhost.tar"), archive("agnhost.tar"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect(t, "agnhost", func() (string, error) { return h.TryCoracle("images", "list") })
	if out, err := h.TryCoracle("images", "import", "/etc/hostname"); err == nil {
		t.Errorf("a file that is no image was imported: %s", out)
	}
}

// TestNotify plays systemd: it receives the front's notifications from start to stop.
func TestNotify(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "solo")
	socket := h.Path("/run/notify.sock")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	told := make(chan string, 1000)
	go func() {
		for buf := make([]byte, 4096); ; {
			n, err := listener.Read(buf)
			if err != nil {
				return
			}
			told <- string(buf[:n])
		}
	}()
	await := func(want string) {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			select {
			case message := <-told:
				if strings.Contains(message, want) {
					return
				}
			case <-deadline:
				t.Fatalf("the service manager was not told %q", want)
			}
		}
	}
	cmd := h.Command("env", "NOTIFY_SOCKET=/run/notify.sock", binary, "server")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await("STATUS=")
	await("READY=1")
	if err := contains("coracle wait right after READY=1", h.Coracle("wait", "--timeout=0")+"ready", "ready"); err != nil {
		t.Error(err)
	}
	h.Run("sh", "-c", `kill -TERM "$(pgrep -xo coracle)"`)
	await("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// testNothingListensInVain checks the listening sockets of a new cluster.
func testNothingListensInVain(t *testing.T, h *hosts.Host) {
	want := []string{"*:10250", "*:6443", "10.42.0.1:10053", "127.0.0.1:10248", "127.0.0.1:10249", "127.0.0.1:10256", "127.0.0.1:6444", "127.0.0.1:free"}
	out := h.Run("sh", "-c", "ss -Hltn | awk '{print $4}'")
	streams := regexp.MustCompile(`127\.0\.0\.1:[3-6]\d{4}\b`) // containerd's, for exec and attach
	if got := slices.Sorted(slices.Values(strings.Fields(streams.ReplaceAllString(out, "127.0.0.1:free")))); !slices.Equal(got, want) {
		t.Errorf("there are listeners at %s\nwant %s", got, want)
	}
	for path, want := range map[string]int{"/api/v1/namespaces": 401, "/version": 401, "/metrics": 401, "/readyz": 200, "/livez": 200} {
		if got := anonymousStatus(t, h, path); got != want {
			t.Errorf("an anonymous client gets status %d for %s, want %d", got, path, want)
		}
	}
	loose := h.Run("sh", "-c", `find /var/lib/coracle /etc/coracle /run/coracle -path /var/lib/coracle/node/containerd -prune -o -type f \( -name '*.key' -o -name '*.pem' -o -name '*kubeconfig*' -o -name 'config.json' \) -perm /077 -print`)
	if loose != "" {
		t.Errorf("secrets that others may read:\n%s", loose)
	}
}

// anonymousStatus is the status of the API's answer to an anonymous client.
func anonymousStatus(t *testing.T, h *hosts.Host, path string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DialContext: h.Dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the server's identity is not tested here
	}}
	resp, err := client.Get("https://127.0.0.1:6443" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// servingNames are the names and addresses in the certificate of the server at an address of the host.
func servingNames(t *testing.T, h *hosts.Host, address string) string {
	t.Helper()
	conn, err := h.Dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the test reads the certificate
	if err := client.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	cert := client.ConnectionState().PeerCertificates[0]
	return fmt.Sprint(cert.DNSNames, cert.IPAddresses)
}
