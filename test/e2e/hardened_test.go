package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
	"github.com/coracle-dev/coracle/test/slots"
)

// benchmark runs coracle check cis, and returns the ids of the recommendations with a result.
func benchmark(t *testing.T, h *hosts.Host) (ids map[string][]string, err error) {
	t.Helper()
	out, err := h.TryCoracle("check", "cis", "-o", "json")
	var report struct {
		Result string
		Checks []struct{ ID, Result, Evidence string }
	}
	if i := strings.Index(out, "{"); i < 0 || json.Unmarshal([]byte(out[i:]), &report) != nil {
		t.Fatalf("coracle check cis: %v: %s", err, out)
	}
	ids = map[string][]string{}
	for _, c := range report.Checks {
		ids[c.Result] = append(ids[c.Result], c.ID)
		if c.Result == "fail" {
			ids["evidence"] = append(ids["evidence"], c.ID+": "+c.Evidence)
		}
	}
	if (report.Result == "fail") != (err != nil) {
		t.Errorf("the result is %s, the error %v", report.Result, err)
	}
	return ids, err
}

// testBenchmark: a new server with the default settings meets all that the CIS benchmark tests, and what somebody changes is found.
func testBenchmark(t *testing.T, h *hosts.Host) {
	ids, err := benchmark(t, h)
	if err != nil || len(ids["pass"]) < 70 {
		t.Errorf("%d pass, %v: %v", len(ids["pass"]), err, ids["evidence"])
	}
	if want := []string{"1.2.1", "1.2.3", "1.2.9", "1.2.11", "4.2.7"}; !slices.Equal(ids["warn"], want) {
		t.Errorf("left to the administrator are %v, not %v", ids["warn"], want)
	}
	file := h.Data("server", "etc", "scheduler.kubeconfig")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	ids, err = benchmark(t, h)
	if err == nil || !slices.Equal(ids["fail"], []string{"1.1.15"}) || !strings.Contains(ids["evidence"][0], "mode 644") {
		t.Errorf("with an open file: %v, %v", ids["evidence"], err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := h.Coracle("check", "cis"); !strings.Contains(out, "/var/lib/coracle/node/etc/kubelet.yaml has mode 600 and owner 0:0") {
		t.Errorf("as text: %s", out)
	}
}

// testBenchmarkOnAll: machines that join have the cluster's defaults. On agents there is less to compare.
func testBenchmarkOnAll(t *testing.T, c *hosts.Cluster) {
	for _, h := range append(slices.Clone(c.Servers), c.Agents...) {
		hosts.Eventually(t, time.Minute, func() error { // a kubelet's serving certificate comes a moment after its node is Ready
			ids, err := benchmark(t, h.For(t))
			if err != nil || !slices.Contains(ids["pass"], "4.2.14") || slices.Contains(c.Servers, h) != slices.Contains(ids["pass"], "1.2.30") {
				return fmt.Errorf("%s: %v: %v; pass %v", h.Name, err, ids["evidence"], ids["pass"])
			}
			return nil
		})
	}
}

// testConfigFlags: what coracle config flags shows is what runs.
func testConfigFlags(t *testing.T, h *hosts.Host) {
	var parts map[string]struct {
		Flags  []string
		Config map[string]any
		TOML   string
	}
	if err := json.Unmarshal([]byte(h.Coracle("config", "flags", "-o", "json")), &parts); err != nil {
		t.Fatal(err)
	}
	for part, flag := range map[string]string{
		"etcd": "--peer-client-cert-auth=true", "kube-apiserver": "--authorization-mode=Node,RBAC", "kube-controller-manager": "--use-service-account-credentials=true",
		"kube-scheduler": "--secure-port=0", "kubelet": "--hostname-override=solo", "kube-proxy": "--proxy-mode=nftables",
	} {
		if !slices.Contains(parts[part].Flags, flag) {
			t.Errorf("%s has no %s: %v", part, flag, parts[part].Flags)
		}
	}
	// The kubelet tells its configuration itself.
	var running struct{ KubeletConfig map[string]any }
	if err := json.Unmarshal([]byte(h.Kubectl("get", "--raw", "/api/v1/nodes/solo/proxy/configz")), &running); err != nil {
		t.Fatal(err)
	}
	for name, value := range running.KubeletConfig {
		if fmt.Sprint(parts["kubelet"].Config[name]) != fmt.Sprint(value) {
			t.Errorf("the kubelet's %s is %v, shown is %v", name, value, parts["kubelet"].Config[name])
		}
	}
	if err := contains("containerd", parts["containerd"].TOML, "sandbox"); err != nil {
		t.Error(err)
	}
	if parts["flannel"].Config["Backend"] == nil {
		t.Errorf("flannel has %v", parts["flannel"])
	}
	text := h.Coracle("config", "flags", "kubelet", "kube-proxy")
	if !strings.Contains(text, "seccompDefault: true\n") || !strings.Contains(text, "# kube-proxy\n--proxy-mode=nftables\n") || strings.Contains(text, "# etcd") {
		t.Errorf("of two parts: %s", text)
	}
}

// testConfined: pods that say nothing about it have a filter of system calls and a limit of processes. One that wants more than the level baseline
// runs, and who makes it is warned.
func testConfined(t *testing.T, h *hosts.Host) {
	if out, err := inClient(h, "grep Seccomp: /proc/self/status"); err != nil || !strings.Contains(out, "2") {
		t.Errorf("the pod has %q, %v", out, err)
	}
	uid := h.Kubectl("get", "pod", "client", "-o", "jsonpath={.metadata.uid}")
	limits := h.Run("sh", "-c", "cat $(find /sys/fs/cgroup -name pids.max -path '*"+uid+"*')")
	if !strings.Contains(limits, "16384\n") {
		t.Errorf("the limits of the pod are %q", limits)
	}
	out, err := h.Command(hosts.Bin(t), "kubectl", "run", "outside", "--image=coracle.test/busybox:1", "--privileged", "--restart=Never", "--", "true").CombinedOutput()
	if err != nil || !strings.Contains(string(out), `Warning: would violate PodSecurity "baseline:latest": privileged`) {
		t.Errorf("a privileged pod: %v: %s", err, out)
	}
	h.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/outside", "--timeout=2m")
	out, err = h.Command(hosts.Bin(t), "kubectl", "run", "inside", "--image=coracle.test/busybox:1", "--restart=Never", "--", "true").CombinedOutput()
	if err != nil || strings.Contains(string(out), "Warning") {
		t.Errorf("a plain pod: %v: %s", err, out)
	}
	h.Kubectl("delete", "pod", "outside", "inside", "--wait=false")
}

// TestProfile: with --profile=cis, pods that are restricted run, from a registry, and what the profile refuses is refused.
func TestProfile(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	archives := hosts.Images(t)
	busybox := slices.IndexFunc(archives, func(path string) bool { return filepath.Base(path) == "busybox.tar" })
	if busybox < 0 {
		t.Skip("CORACLE_TEST_IMAGES has no busybox.tar: run `make test`")
	}
	h := hosts.New(t, hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24")), "solo", hosts.Options{})
	r := registries.Start(t, h, registries.Options{})
	r.Push("busybox:1", registries.ReadImage(t, archives[busybox]))
	writeHost(t, h, registriesFile, fmt.Sprintf("mirrors: {%q: {endpoint: [%q]}}\n", r.Addr, r.URL))
	_, s := startCluster(t, h, "--profile=cis")
	ids, err := benchmark(t, h)
	if want := []string{"1.2.1", "4.2.7"}; err != nil || !slices.Equal(ids["warn"], want) {
		t.Errorf("%v: left to the administrator are %v, failed %v", err, ids["warn"], ids["evidence"])
	}

	const restricted = `securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}`
	pod := func(name, context string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: %q, command: [sleep, '3600'], %s}]}\n",
			name, r.Addr+"/busybox:1", context)
	}
	h.Apply(pod("restricted", restricted))
	h.Kubectl("wait", "--for=condition=Ready", "pod/restricted", "--timeout=2m")
	if policy := h.Kubectl("get", "pod", "restricted", "-o", "jsonpath={.spec.containers[0].imagePullPolicy}"); policy != "Always" {
		t.Errorf("images are pulled %s", policy)
	}
	refused := func(what, manifest, why string) {
		t.Helper()
		cmd := h.Command(hosts.Bin(t), "kubectl", "apply", "-f", "-")
		cmd.Stdin = strings.NewReader(manifest)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), why) {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
	refused("a plain pod", pod("plain", "securityContext: {}"), `violates PodSecurity "restricted:latest"`)
	refused("a privileged pod", pod("privileged", "securityContext: {privileged: true}"), `violates PodSecurity "restricted:latest"`)
	refused("an external address", "apiVersion: v1\nkind: Service\nmetadata: {name: thief}\nspec: {externalIPs: [192.0.2.9], ports: [{port: 80}]}\n", "externalIPs")
	hosts.Eventually(t, time.Minute, func() error {
		return contains("policies", h.Kubectl("get", "networkpolicies", "-A", "-o", "name"), "networkpolicy.networking.k8s.io/coracle-own-namespace-only")
	})
	// What extends the cluster may run in namespace kube-system, and where an administrator says so.
	h.Kubectl("create", "namespace", "drivers")
	h.Kubectl("label", "namespace", "drivers", "pod-security.kubernetes.io/enforce=privileged")
	for _, namespace := range []string{"kube-system", "drivers"} {
		h.Apply(strings.Replace(pod("driver", "securityContext: {privileged: true}"), "name: driver", "name: driver, namespace: "+namespace, 1))
	}

	// Without the profile, what it has added is gone, and pods stay.
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	startCluster(t, h)
	hosts.Eventually(t, time.Minute, func() error {
		if out := h.Kubectl("get", "networkpolicies", "-A", "-o", "name"); out != "" {
			return fmt.Errorf("there are policies: %s", out)
		}
		return nil
	})
	h.Apply(pod("plain", "securityContext: {}"))
	h.Kubectl("wait", "--for=condition=Ready", "pod/restricted", "pod/plain", "--timeout=2m")
}

// testEarlierCluster: a cluster that a version without the new defaults began stays as it was, until somebody asks for them, and then has them
// for good.
func testEarlierCluster(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	file := h.Data("server", "cluster.json")
	for _, step := range []struct {
		args     []string
		forget   bool
		hardened bool
	}{{nil, true, false}, {[]string{"--hardened"}, false, true}, {nil, false, true}} {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if out, err := h.TryCoracle("check", "cis"); err == nil || !strings.Contains(err.Error(), "does not run") {
			t.Errorf("what does not run is compared with the benchmark: %v: %s", err, out)
		}
		if out := h.Coracle("config", "flags", "etcd"); !strings.Contains(out, "--peer-client-cert-auth=true\n") {
			t.Errorf("of a stopped server: %s", out)
		}
		if step.forget {
			var memory map[string]any
			data, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(data, &memory)
			}
			settings, ok := memory["settings"].(map[string]any)
			if err != nil || !ok || settings["hardened"] != "true" {
				t.Fatalf("%v: %s", err, data)
			}
			delete(settings, "hardened")
			if data, err = json.Marshal(memory); err == nil {
				err = os.WriteFile(file, data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s = h.Start(step.args...)
		waitReady(t, h)
		out := h.Coracle("config", "flags", "kube-apiserver", "kubelet")
		for _, one := range []string{"--tls-cipher-suites=", "--service-account-extend-token-expiration=false", "--admission-control-config-file=", "seccompDefault: true", "podPidsLimit: 16384"} {
			if strings.Contains(out, one) != step.hardened {
				t.Errorf("with %v, hardened %v: %s in\n%s", step.args, step.hardened, one, out)
			}
		}
	}
	return s
}
