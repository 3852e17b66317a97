package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/test/growth"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

const sleepers = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: sleepers}
spec:
  replicas: 3
  selector: {matchLabels: {app: sleepers}}
  template:
    metadata: {labels: {app: sleepers}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: main, image: coracle.test/busybox:1, command: [sleep, '36000']}]
`

// containers lists the pods' containers with their ids and restart counts, in a stable order.
func containers(h *hosts.Host, args ...string) string {
	return h.Kubectl(append([]string{"get", "pods", "--sort-by=.metadata.name", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{"\n"}{end}`}, args...)...)
}

func startSleepers(t *testing.T, h *hosts.Host) (running string) {
	t.Helper()
	h.Apply(sleepers)
	h.Kubectl("rollout", "status", "deployment/sleepers", "--timeout=3m")
	return containers(h)
}

// sleeperProcesses returns the process ids of the three sleepers, once only these run: a pod of an earlier test can end after it is gone from the API.
func sleeperProcesses(t *testing.T, h *hosts.Host) (pids string) {
	t.Helper()
	hosts.Eventually(t, time.Minute, func() error {
		pids = h.Run("pgrep", "-x", "sleep")
		if n := len(strings.Fields(pids)); n != 3 {
			return fmt.Errorf("%d sleepers run, not 3", n)
		}
		return nil
	})
	return pids
}

// page is a web page with an Ingress for it.
const page = `
apiVersion: v1
kind: Namespace
metadata: {name: page}
---
apiVersion: v1
kind: Pod
metadata: {name: page, namespace: page, labels: {app: page}}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: coracle.test/busybox:1, command: [sh, -c, 'echo hello >/tmp/index.html; exec httpd -f -p 8080 -h /tmp']}]
---
apiVersion: v1
kind: Service
metadata: {name: page, namespace: page}
spec: {selector: {app: page}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: page, namespace: page}
spec: {rules: [{host: page.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: page, port: {number: 80}}}}]}}]}
`

// testRestartKeepsPods stops and starts coracle: the containers continue to run, and no request to an Ingress fails.
func testRestartKeepsPods(t *testing.T, h *hosts.Host, s *hosts.Server) *hosts.Server {
	before := startSleepers(t, h)
	pids := sleeperProcesses(t, h)
	h.Apply(page)
	url := "http://" + h.IP.String() + "/"
	hosts.Eventually(t, time.Minute, func() error { _, err := h.Try("wget", "-q", "-O", "-", "--header", "Host: page.test", url); return err })
	load := h.StartTraffic(url, "page.test", 4)

	began := time.Now()
	if err := s.Stop(); err != nil {
		t.Fatalf("stopping: %v", err)
	}
	t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
	if got := h.Run("pgrep", "-x", "sleep"); got != pids {
		t.Errorf("the pods' processes changed while coracle was stopped: %q, then %q", pids, got)
	}
	s = h.Start()
	waitReady(t, h)
	if got := containers(h); got != before {
		t.Errorf("containers before:\n%s\nafter:\n%s", before, got)
	}
	if got := h.Run("pgrep", "-x", "sleep"); got != pids {
		t.Errorf("the pods' processes changed over the restart: %q, then %q", pids, got)
	}
	h.Kubectl("scale", "deployment/sleepers", "--replicas=4")
	h.Kubectl("rollout", "status", "deployment/sleepers", "--timeout=3m")
	hosts.Eventually(t, time.Minute, func() error { // after a quick restart on a slow machine some of the thousand are left to send
		if n, _ := load.Requests(); n < 1000 {
			return fmt.Errorf("only %d requests were answered", n)
		}
		return nil
	})
	requests, failures := load.Stop()
	t.Logf("%d of %d requests failed", len(failures), requests)
	if len(failures) > 0 {
		t.Errorf("%d of %d requests failed: %s", len(failures), requests, strings.Join(failures, "; "))
	}
	h.Kubectl("delete", "namespace", "page")
	hosts.Eventually(t, time.Minute, func() error {
		if left, err := h.Try("pgrep", "-f", "coracle-core gateway"); err == nil {
			return fmt.Errorf("processes of the gateway are left: %s", left)
		}
		return nil
	})
	return s
}

// stopWhileFollowing stops the control plane while a client follows a log, which ends only when one of both sides ends it.
func stopWhileFollowing(t *testing.T, h *hosts.Host, s *hosts.Server) {
	t.Helper()
	pods, err := h.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=sleepers"})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("no sleepers: %v", err)
	}
	log, err := h.Client().CoreV1().Pods("default").GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	pid, err := s.ChildPID("control-plane")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hosts.Eventually(t, time.Minute, func() error {
		if syscall.Kill(pid, 0) == nil {
			return errors.New("the control plane stops")
		}
		return nil
	})
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the control plane stopped after %s, while a log was followed", took)
	} else {
		t.Logf("the control plane stopped in %s, while a log was followed", took.Round(time.Millisecond))
	}
	waitReady(t, h)
}

// TestDrainOnStop checks that --drain-on-stop also stops the pods, and before that, that --kubelet-arg can filter their system calls, and that a control
// plane stops while a client wants more.
func TestDrainOnStop(t *testing.T) {
	slots.Take(t)
	h, s := newCluster(t, "--drain-on-stop", "--kubelet-arg=seccomp-default=true")
	startSleepers(t, h)
	if out := h.Run("sh", "-c", `grep Seccomp: /proc/$(pgrep -xn sleep)/status`); out != "Seccomp:\t2\n" {
		t.Errorf("with a default filter, a container has %q", out)
	}
	stopWhileFollowing(t, h, s)
	if err := s.Stop(); err != nil {
		t.Fatalf("stopping: %v", err)
	}
	if out, err := h.Try("pgrep", "-f", "containerd-shim|sleep 36000"); err == nil {
		t.Errorf("processes are left: %s", out)
	}
	h.Start("--drain-on-stop")
	waitReady(t, h)
	h.Kubectl("wait", "--for=condition=Available", "deployment/sleepers", "--timeout=3m")
}

// kills is the number of kills in TestKill.
func kills(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("CORACLE_TEST_KILLS"))
	if err != nil {
		return 20
	}
	return n
}

// TestKill kills each child process and the front at random moments while a client writes. Every acknowledged write
// must still exist afterwards, the pods must not restart, and the kills leave nothing on the host.
func TestKill(t *testing.T) {
	slots.Take(t)
	h, s := newCluster(t)
	before := startSleepers(t, h)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	refusesNobody(t, h, s)
	ctx, stop := context.WithCancel(t.Context())
	writer := writeConfigMaps(ctx, h.Client())
	var first growth.Figures
	for i := range kills(t) {
		if i == 3 { // each was killed once
			waitReady(t, h)
			first = h.Figures()
		}
		target := []string{"control-plane", "node", "front"}[i%3]
		s = kill(t, h, s, target)
		if random.IntN(3) > 0 {
			waitReady(t, h)
			writer.await(t, 1+random.IntN(30))
		} else { // the next kill hits it during its start
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
		}
	}
	waitReady(t, h)
	writer.await(t, 1)
	stop()
	acknowledged := writer.wait()

	list, err := h.Client().CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	present := map[string]bool{}
	for _, item := range list.Items {
		present[item.Name] = true
	}
	lost := 0
	for _, name := range acknowledged {
		if !present[name] {
			lost++
			t.Errorf("lost: %s", name)
		}
	}
	t.Logf("%d kills, %d acknowledged writes, %d lost", kills(t), len(acknowledged), lost)
	if len(acknowledged) < kills(t) {
		t.Errorf("only %d writes got through", len(acknowledged))
	}
	if got := containers(h); got != before {
		t.Errorf("containers before:\n%s\nafter:\n%s", before, got)
	}
	hosts.Eventually(t, time.Minute, func() error {
		if grown := growth.Grown(first, h.Figures()); len(grown) > 0 {
			return fmt.Errorf("more is left on the host than after three kills: %q", grown)
		}
		return nil
	})
	h.Kubectl("scale", "deployment/sleepers", "--replicas=5")
	h.Kubectl("rollout", "status", "deployment/sleepers", "--timeout=3m")
}

// refusesNobody kills the control plane. Clients that connect before the next one serves wait for it.
func refusesNobody(t *testing.T, h *hosts.Host, s *hosts.Server) {
	t.Helper()
	kill(t, h, s, "control-plane")
	for range 20 {
		conn, err := net.Dial("tcp", net.JoinHostPort(h.IP.String(), "6443"))
		if err != nil {
			t.Fatalf("while there is no control plane: %v", err)
		}
		conn.Close()
	}
	if _, err := h.Client().Discovery().ServerVersion(); err != nil && !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the next control plane: %v", err)
	}
	waitReady(t, h)
}

// kill kills one of coracle's processes. It restarts a killed front, as an init system would.
func kill(t *testing.T, h *hosts.Host, s *hosts.Server, target string) *hosts.Server {
	t.Helper()
	if target == "front" {
		s.Kill()
		return h.Start()
	}
	var pid int
	hosts.Eventually(t, time.Minute, func() (err error) {
		pid, err = s.ChildPID(target)
		return err
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("killing the %s process: %v", target, err)
	}
	return s
}

// configMapWriter is a client that writes ConfigMaps.
type configMapWriter struct {
	done  sync.WaitGroup
	mu    sync.Mutex
	names []string // of acknowledged writes
}

// writeConfigMaps writes one ConfigMap after the other until ctx is done.
func writeConfigMaps(ctx context.Context, client kubernetes.Interface) *configMapWriter {
	w := &configMapWriter{}
	w.done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("write-%d", i)
			try, cancel := context.WithTimeout(ctx, 3*time.Second)
			_, err := client.CoreV1().ConfigMaps("default").Create(try,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			cancel()
			if err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			w.mu.Lock()
			w.names = append(w.names, name)
			w.mu.Unlock()
		}
	})
	return w
}

// await waits until n more writes are acknowledged.
func (w *configMapWriter) await(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.names)
	}
	before := count()
	hosts.Eventually(t, time.Minute, func() error {
		if got := count() - before; got < n {
			return fmt.Errorf("%d of %d writes were acknowledged", got, n)
		}
		return nil
	})
}

// wait waits for the writer's end and returns the names of the acknowledged writes.
func (w *configMapWriter) wait() []string {
	w.done.Wait()
	return w.names
}

// testHostReboot ends all processes like a power cut; /run is empty, the pause image is damaged, and the cluster recovers without help.
func testHostReboot(t *testing.T, h *hosts.Host, _ *hosts.Server) *hosts.Server {
	startSleepers(t, h)
	h.Kubectl("create", "configmap", "kept")
	h.Apply(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}, "spec": {"podCIDR": "198.51.100.0/24", "podCIDRs": ["198.51.100.0/24"]}}`)
	h.Run("/var/lib/coracle/bin/nft", "delete", "table", "ip", "kube-proxy")
	if out, err := h.TryCoracle("status"); err == nil || !strings.Contains(out, "the Service kubernetes does not answer at 10.43.0.1:443") {
		t.Errorf("without kube-proxy's rules: %v\n%s", err, out)
	}
	pause := pauseBlobs(h)
	h.Kill()
	damagePause(t, h, pause)
	h.Boot()
	s := h.Start()
	waitReady(t, h)
	if s.Restarts() > 0 || !strings.Contains(s.Log(), "the node's pod subnet 198.51.100.0/24 is another node's or not one of the cluster's") {
		t.Error("a Node with a subnet outside of the cluster's stops the control plane, or nothing is said about it")
	}
	h.Kubectl("delete", "node", "elsewhere")
	h.Kubectl("get", "configmap", "kept")
	hosts.Eventually(t, 3*time.Minute, func() error {
		ready := h.Kubectl("get", "deployment", "sleepers", "-o", "jsonpath={.status.readyReplicas}")
		if strings.TrimSpace(ready) != "3" {
			return fmt.Errorf("%q pods are ready", ready)
		}
		return nil
	})
	// Ready may still be the state from before the power cut: the pods must really run.
	hosts.Eventually(t, 3*time.Minute, func() error {
		out, _ := h.Try("pgrep", "-c", "-x", "sleep")
		return contains("sleeping processes", out, "3")
	})
	return s
}

// pauseBlobs returns the names of the pause image's blobs.
func pauseBlobs(h *hosts.Host) []string {
	return strings.Fields(h.Run("sh", "-c", "tar -tf /var/lib/coracle/bin/images/pause.tar | grep 'blobs/sha256/.'"))
}

// damagePause overwrites the files of the pause image with zeros, as file systems leave them after a power cut: all of its blobs, and the
// program in the unpacked layer.
func damagePause(t *testing.T, h *hosts.Host, blobs []string) {
	t.Helper()
	zeroed := 0
	zero := func(pattern string, args ...any) {
		files, _ := filepath.Glob(fmt.Sprintf(pattern, args...))
		for _, file := range files {
			info, err := os.Stat(file)
			if err == nil {
				err = os.WriteFile(file, make([]byte, info.Size()), info.Mode())
			}
			if err != nil {
				t.Fatal(err)
			}
			zeroed++
		}
	}
	root := h.Data("node", "containerd")
	for _, blob := range blobs {
		zero("%s/io.containerd.content.v1.content/%s", root, blob)
	}
	zero("%s/io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs/pause", root)
	if zeroed < 4 {
		t.Fatalf("%d files of the pause image were found, want a manifest, a configuration, a layer and the program", zeroed)
	}
}

// TestInit runs coracle as the first process of a container: it must reap its pods' orphans and stop cleanly.
func TestInit(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "solo")
	init := h.Command("unshare", "--pid", "--fork", "--mount-proc", hosts.Bin(t), "server")
	var log strings.Builder
	init.Stdout, init.Stderr = &log, &log
	if err := init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(tail(log.String(), 40))
		}
	})
	// Its processes are seen with their ids in the host's outer PID namespace; inside, the front is number 1.
	inside := func(args ...string) (string, error) {
		return h.Try("sh", append([]string{"-c", `exec nsenter -t "$(pgrep -xo coracle)" -p -m -- "$@"`, "sh"}, args...)...)
	}
	hosts.Eventually(t, 3*time.Minute, func() error {
		_, err := inside(binary, "wait", "--timeout=3m")
		return err
	})
	h.Apply("apiVersion: batch/v1\nkind: Job\nmetadata: {name: orphans}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: coracle.test/busybox:1, command: [sh, -c, '(sleep 1 &)']}]}}}\n")
	h.Kubectl("wait", "--for=condition=Complete", "job/orphans", "--timeout=3m")
	h.Kubectl("delete", "job", "orphans")
	hosts.Eventually(t, 2*time.Minute, func() error {
		out, err := inside("ps", "-eo", "pid,ppid,stat,comm")
		if err != nil {
			return err
		}
		if strings.Contains(out, "Z") && strings.Contains(out, "defunct") {
			return fmt.Errorf("zombies are left:\n%s", out)
		}
		if first := strings.Fields(out); len(first) < 8 || first[4] != "1" || first[7] != "coracle" {
			return fmt.Errorf("coracle is not the first process:\n%s", out)
		}
		return nil
	})
	h.Run("sh", "-c", `kill -TERM "$(pgrep -xo coracle)"`)
	began := time.Now()
	if err := init.Wait(); err != nil {
		t.Errorf("coracle as the first process ended with %v", err)
	}
	t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
}
