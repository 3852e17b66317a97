package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestWorkloads has tests that need one server with the default settings: the properties of a new server, and the
// features of pods.
func TestWorkloads(t *testing.T) {
	slots.Take(t)
	h, server := newCluster(t)
	t.Run("nothing listens in vain", func(t *testing.T) { testNothingListensInVain(t, h.For(t)) })
	t.Run("users of processes", func(t *testing.T) { testUsers(t, h.For(t)) })
	t.Run("commands", func(t *testing.T) { testCommands(t, h.For(t)) })
	t.Run("manifests", func(t *testing.T) { testManifests(t, h.For(t)) })
	t.Run("Corefile", func(t *testing.T) { testCorefile(t, h.For(t)) })
	t.Run("conformance", func(t *testing.T) { testConformance(t, h.For(t)) })
	h.Apply(manifest(t, "workloads.yaml"))
	h.Kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=3m")
	h.Kubectl("wait", "--for=condition=Ready", "pod/client", "pod/hostport", "pod/hostnetwork", "pod/stdin", "--timeout=3m")

	turns := make(chan struct{}, atOnce)
	for name, test := range map[string]func(*testing.T, *hosts.Host){
		"no pod of ours":       testNoSystemPods,
		"services":             testServices,
		"kube-proxy full sync": testFullSync,
		"dns":                  testDNS,
		"host ports":           testHostPorts,
		"exec":                 testExec,
		"logs -f":              testLogsFollow,
		"port-forward":         testPortForward,
		"cp":                   testCopy,
		"attach":               testAttach,
		"volumes":              testVolumes,
		"init and sidecar":     testStages,
		"liveness probe":       testLiveness,
		"jobs":                 testJobs,
		"daemon sets":          testDaemonSet,
		"stateful sets":        testStatefulSet,
		"custom resources":     testCustomResources,
		"admission webhooks":   testWebhooks,
		"kubectl cluster-info": testClusterInfo,
		"node version":         testNodeVersion,
		"seldom renewed":       testIdentityLease,
		"audit":                testAudit,
		"check cis":            testBenchmark,
		"config flags":         testConfigFlags,
		"confined":             testConfined,
		"dashboard":            testDashboard,
		"ingress":              func(t *testing.T, h *hosts.Host) { testIngress(t, h, server) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			t.Cleanup(func() { <-turns })
			test(t, h.For(t))
		})
	}
}

// inClient runs a shell command in the pod "client".
func inClient(h *hosts.Host, line string) (string, error) {
	return h.TryCoracle("kubectl", "exec", "client", "--", "sh", "-c", line)
}

func testNoSystemPods(t *testing.T, h *hosts.Host) {
	if out := h.Kubectl("get", "pods", "-A", "-o", "jsonpath={.items[?(@.metadata.namespace!='default')].metadata.name}"); out != "" {
		t.Errorf("there are pods nobody asked for: %s", out)
	}
}

// testIdentityLease: the API server's own Lease is not renewed every ten seconds, which would be half of what an idle server writes.
func testIdentityLease(t *testing.T, h *hosts.Host) {
	var lease struct{ Items []coordinationv1.Lease }
	hosts.Eventually(t, time.Minute, func() error {
		out := h.Kubectl("get", "leases", "-n", "kube-system", "-l", "apiserver.kubernetes.io/identity=kube-apiserver", "-o", "json")
		if err := json.Unmarshal([]byte(out), &lease); err != nil || len(lease.Items) != 1 {
			return fmt.Errorf("the Leases are %s: %w", out, err)
		}
		if age := time.Since(lease.Items[0].CreationTimestamp.Time); age < 15*time.Second {
			return fmt.Errorf("it is %s old", age)
		}
		return nil
	})
	if after := lease.Items[0].Spec.RenewTime.Sub(lease.Items[0].CreationTimestamp.Time); after > 5*time.Second {
		t.Errorf("it was renewed %s after it was made", after)
	}
}

func testServices(t *testing.T, h *hosts.Host) {
	podIP := h.Kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].status.podIP}")
	clusterIP := h.Kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	for name, url := range map[string]string{
		"pod to pod":           "http://" + podIP + ":8080/hostname",
		"pod to ClusterIP":     "http://" + clusterIP + "/hostname",
		"pod to Service name":  "http://web/hostname",
		"pod to headless":      "http://web-headless:8080/hostname",
		"pod to NodePort":      "http://" + h.IP.String() + ":30080/hostname",
		"pod to itself's kind": "http://web.default.svc.cluster.local/hostname",
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, "web-", func() (string, error) { return inClient(h, "probe get "+url) })
		})
	}
	for name, url := range map[string]string{
		"host to pod":       "http://" + podIP + ":8080/hostname",
		"host to ClusterIP": "http://" + clusterIP + "/hostname",
		"host to NodePort":  "http://" + h.IP.String() + ":30080/hostname",
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, "web-", func() (string, error) { return h.Get(url) })
		})
	}
	t.Run("balanced over all pods", func(t *testing.T) {
		hosts.Eventually(t, time.Minute, func() error {
			out, err := inClient(h, "for i in $(seq 40); do probe get http://web/hostname; echo; done | sort -u | wc -l")
			if err != nil {
				return err
			}
			return contains("number of pods that answered", out, "3")
		})
	})
	t.Run("hairpin", func(t *testing.T) {
		pod := h.Kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
		for range 6 {
			h.Kubectl("exec", pod, "--", "/agnhost", "connect", clusterIP+":80", "--timeout=2s")
		}
	})
}

func testDNS(t *testing.T, h *hosts.Host) {
	clusterIP := h.Kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	podIP := h.Kubectl("get", "pod", "client", "-o", "jsonpath={.status.podIP}")
	dashed := strings.ReplaceAll(podIP, ".", "-")
	dbIP := h.Kubectl("get", "pod", "db-0", "-o", "jsonpath={.status.podIP}")
	for name, want := range map[string]string{
		"web":                                 clusterIP,
		"web.default":                         clusterIP,
		"web.default.svc":                     clusterIP,
		"web.default.svc.cluster.local":       clusterIP,
		"web.default.svc.cluster.local.":      clusterIP,
		"kubernetes.default":                  "10.43.0.1",
		"kube-dns.kube-system":                "10.43.0.10",
		"db-0.db":                             dbIP,
		"db-0.db.default.svc.cluster.local":   dbIP,
		dashed + ".default.pod.cluster.local": podIP,
		hosts.ExternalName:                    hosts.ExternalIP,
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, want, func() (string, error) { return inClient(h, "probe lookup "+name) })
		})
	}
	t.Run("reverse", func(t *testing.T) {
		expect(t, "web.default.svc.cluster.local", func() (string, error) { return inClient(h, "nslookup "+clusterIP) })
	})
	t.Run("SRV", func(t *testing.T) {
		expect(t, "web.default.svc.cluster.local", func() (string, error) {
			return inClient(h, "nslookup -type=srv _http._tcp.web.default.svc.cluster.local")
		})
	})
	t.Run("unknown name", func(t *testing.T) {
		if out, err := inClient(h, "nslookup no-such-thing.default.svc.cluster.local"); err == nil {
			t.Errorf("a name that does not exist resolves: %s", out)
		}
	})
	t.Run("over TCP", func(t *testing.T) {
		h.Kubectl("exec", "client", "--", "probe", "connect", "10.43.0.10:53")
	})
	t.Run("from a pod on the host's network", func(t *testing.T) {
		out := h.Kubectl("exec", "hostnetwork", "--", "/agnhost", "connect", clusterIP+":80", "--timeout=3s")
		if out != "" {
			t.Errorf("connecting: %s", out)
		}
		expect(t, "", func() (string, error) {
			return h.TryCoracle("kubectl", "exec", "hostnetwork", "--", "/agnhost", "connect", "web.default.svc.cluster.local:80", "--timeout=3s")
		})
	})
}

func testHostPorts(t *testing.T, h *hosts.Host) {
	expect(t, "hostport", func() (string, error) {
		return h.Get("http://" + h.IP.String() + ":18080/hostname")
	})
	expect(t, "hostport", func() (string, error) {
		return inClient(h, "probe get http://"+h.IP.String()+":18080/hostname")
	})
	expect(t, h.Name, func() (string, error) {
		return h.Get("http://127.0.0.1:18081/hostname")
	})
}

func testExec(t *testing.T, h *hosts.Host) {
	if got := h.Kubectl("exec", "client", "--", "echo", "over", "here"); got != "over here\n" {
		t.Errorf("exec printed %q", got)
	}
	cmd := h.Command(hosts.Bin(t), "kubectl", "exec", "-i", "client", "--", "sh", "-c", "cat; exit 7")
	cmd.Stdin = strings.NewReader("through stdin")
	out, err := cmd.Output()
	if string(out) != "through stdin" {
		t.Errorf("exec -i printed %q", out)
	}
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 7 {
		t.Errorf("exec ended with %v, not with the command's exit code 7", err)
	}
}

func testLogsFollow(t *testing.T, h *hosts.Host) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := h.Command(hosts.Bin(t), "kubectl", "logs", "-f", "--tail=1", "client")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	// Three lines are more than the tail, so two of them were followed.
	var lines int
	for buf := make([]byte, 256); lines < 3; {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("following: %v after %d lines", err, lines)
		}
		lines += bytes.Count(buf[:n], []byte("\n"))
	}
	cancel()
	_ = cmd.Wait()
}

func testPortForward(t *testing.T, h *hosts.Host) {
	cmd := h.Command(hosts.Bin(t), "kubectl", "port-forward", "service/web", "19090:80")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		h.Run("pkill", "-f", "port-forward service/web")
		_ = cmd.Wait()
	}()
	expect(t, "web-", func() (string, error) { return h.Get("http://127.0.0.1:19090/hostname") })
}

func testCopy(t *testing.T, h *hosts.Host) {
	h.Run("sh", "-c", "echo cargo > /tmp/out")
	h.Kubectl("cp", "/tmp/out", "client:/tmp/in")
	h.Kubectl("cp", "client:/tmp/in", "/tmp/back")
	if got := h.Run("cat", "/tmp/back"); got != "cargo\n" {
		t.Errorf("the file came back as %q", got)
	}
}

func testAttach(t *testing.T, h *hosts.Host) {
	cmd := h.Command(hosts.Bin(t), "kubectl", "attach", "-i", "stdin")
	cmd.Stdin = strings.NewReader("ahoy\n")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ahoy") {
		t.Errorf("attach printed %q and ended with %v", out, err)
	}
}

func testVolumes(t *testing.T, h *hosts.Host) {
	for line, want := range map[string]string{
		"echo $GREETING":             "hello",
		"cat /config/greeting":       "hello",
		"cat /secret/word":           "swordfish",
		"cat /projected/name":        "client",
		"cat /projected/word":        "swordfish",
		"cut -c1-2 /projected/token": "ey",
		"touch /scratch/x && df -t tmpfs /scratch | tail -1": "tmpfs",
	} {
		if out, err := inClient(h, line); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: got %q, %v; want %q", line, out, err, want)
		}
	}
	t.Run("a changed ConfigMap reaches the pod", func(t *testing.T) {
		h.Kubectl("patch", "configmap", "settings", "-p", `{"data":{"greeting":"ahoy"}}`)
		// An annotation makes the kubelet sync the pod now instead of within a minute.
		hosts.Eventually(t, 3*time.Minute, func() error {
			h.Kubectl("annotate", "--overwrite", "pod", "client", fmt.Sprintf("now=%d", time.Now().UnixNano()))
			out, err := inClient(h, "cat /config/greeting")
			if err != nil {
				return err
			}
			return contains("the volume", out, "ahoy")
		})
	})
}

func testStages(t *testing.T, h *hosts.Host) {
	h.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/stages", "--timeout=3m")
	if got := h.Kubectl("logs", "stages", "-c", "main"); got != "first\nsidecar\nmain\n" {
		t.Errorf("the containers ran in this order: %q", got)
	}
}

func testLiveness(t *testing.T, h *hosts.Host) {
	hosts.Eventually(t, 3*time.Minute, func() error {
		count := h.Kubectl("get", "pod", "sickly", "-o", "jsonpath={.status.containerStatuses[0].restartCount}")
		if count == "0" || count == "" {
			return fmt.Errorf("restarts: %q", count)
		}
		return nil
	})
}

func testJobs(t *testing.T, h *hosts.Host) {
	h.Kubectl("wait", "--for=condition=Complete", "job/sums", "--timeout=3m")
	if got := h.Kubectl("logs", "job/sums"); got != "42\n" {
		t.Errorf("the job printed %q", got)
	}
	h.Kubectl("create", "job", "by-hand", "--from=cronjob/minutely")
	h.Kubectl("wait", "--for=condition=Complete", "job/by-hand", "--timeout=3m")
	hosts.Eventually(t, 3*time.Minute, func() error {
		out := h.Kubectl("get", "cronjob", "minutely", "-o", "jsonpath={.status.lastSuccessfulTime}")
		if out == "" {
			return fmt.Errorf("the cron job has not run yet")
		}
		return nil
	})
}

// testFullSync makes kube-proxy write all its rules again, as it also does each hour: it deletes elements whose text,
// as nft lists them, it does not know.
func testFullSync(t *testing.T, h *hosts.Host) {
	syncs := func() string {
		for line := range strings.Lines(h.Kubectl("get", "--raw", "/api/v1/nodes/solo/proxy/metrics")) {
			if count, ok := strings.CutPrefix(line, `kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} `); ok {
				return count
			}
		}
		t.Fatal("kube-proxy does not count its full syncs")
		return ""
	}
	before := syncs()
	h.Kubectl("label", "node", "solo", "topology.kubernetes.io/zone=here")
	hosts.Eventually(t, time.Minute, func() error {
		if syncs() == before {
			return fmt.Errorf("kube-proxy has not synced all rules after %s syncs", before)
		}
		return nil
	})
	services := h.Run("/var/lib/coracle/bin/nft", "list", "map", "ip", "kube-proxy", "service-ips")
	if err := contains("service-ips", services, "10.43.0.1 . tcp . 443 :"); err != nil {
		t.Error(err)
	}
	config := h.RESTConfig()
	config.Host = "https://10.43.0.1"
	config.Timeout = 10 * time.Second
	if client, err := kubernetes.NewForConfig(config); err != nil {
		t.Error(err)
	} else if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Errorf("asking the Service kubernetes: %v", err)
	}
}

func testDaemonSet(t *testing.T, h *hosts.Host) {
	h.Kubectl("rollout", "status", "daemonset/everywhere", "--timeout=3m")
}

func testStatefulSet(t *testing.T, h *hosts.Host) {
	h.Kubectl("rollout", "status", "statefulset/db", "--timeout=3m")
	h.Kubectl("get", "pod", "db-0", "db-1")
}

func testCustomResources(t *testing.T, h *hosts.Host) {
	h.Apply(manifest(t, "crd.yaml"))
	h.Kubectl("wait", "--for=condition=Established", "crd/boats.coracle.test", "--timeout=3m")
	boat := func(name string, seats int) string {
		return fmt.Sprintf("apiVersion: coracle.test/v1\nkind: Boat\nmetadata: {name: %s}\nspec: {seats: %d}\n", name, seats)
	}
	h.Apply(boat("mine", 1))
	if got := h.Kubectl("get", "boat", "mine", "-o", "jsonpath={.spec.seats}"); got != "1" {
		t.Errorf("the custom resource has %q seats", got)
	}
	// Policies take effect shortly after they are written.
	hosts.Eventually(t, 2*time.Minute, func() error {
		return refused(h, boat("barge", 20), "a coracle has one seat or two")
	})
	if err := refused(h, boat("hole", 0), "should be greater than or equal to 1"); err != nil {
		t.Error(err)
	}
}

// refused returns an error unless the API refuses the manifest for the given reason.
func refused(h *hosts.Host, manifest, reason string) error {
	cmd := h.Command(binary, "kubectl", "create", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return fmt.Errorf("accepted: %s", out)
	}
	return contains("the refusal", string(out), reason)
}

// TestReusedAddress checks that a pod with a reused address can be reached at once, also from pods that have connected
// to its former owner: with six addresses for pods, each is soon reused.
func TestReusedAddress(t *testing.T) {
	slots.Take(t)
	h, _ := newCluster(t, "--cluster-cidr=10.42.0.0/24", "--kube-controller-manager-arg=node-cidr-mask-size=29")
	h.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: client}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: coracle.test/busybox:1, command: [sleep, '3600']}]}\n")
	h.Kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=3m")
	// Only a refused connection is retried: the pod does not listen yet. A stale neighbour entry would answer 20
	// seconds later.
	get := func(try func() (string, error)) (out string, err error) {
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			out, err = try()
			if err == nil || !strings.Contains(out+err.Error(), "connection refused") || time.Now().After(end) {
				return out, err
			}
		}
	}
	seen := map[string]int{}
	for range 9 {
		h.Apply(manifest(t, "reused.yaml"))
		h.Kubectl("wait", "--for=condition=Ready", "pod/reused", "--timeout=3m")
		ip := h.Kubectl("get", "pod", "reused", "-o", "jsonpath={.status.podIP}")
		seen[ip]++
		address := "http://" + ip + ":8080/hostname"
		if out, err := get(func() (string, error) { return h.Get(address) }); err != nil || out != "reused" {
			t.Errorf("from the host to %s, used %d times: %q, %v", ip, seen[ip], out, err)
		}
		if out, err := get(func() (string, error) { return inClient(h, "probe get "+address) }); err != nil || out != "reused" {
			t.Errorf("from a pod to %s, used %d times: %q, %v", ip, seen[ip], out, err)
		}
		h.Kubectl("delete", "pod", "reused", "--now")
	}
	if len(seen) == 9 {
		t.Errorf("no address was used again: %v", seen)
	}
}

func testClusterInfo(t *testing.T, h *hosts.Host) {
	out := h.Kubectl("cluster-info")
	for _, want := range []string{"control plane", "CoreDNS"} {
		if err := contains("kubectl cluster-info", out, want); err != nil {
			t.Error(err)
		}
	}
}

func testNodeVersion(t *testing.T, h *hosts.Host) {
	out := h.Kubectl("get", "node", h.Name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
	if !strings.HasPrefix(out, "v1.37.1+coracle.") {
		t.Errorf("the node reports version %q", out)
	}
}
