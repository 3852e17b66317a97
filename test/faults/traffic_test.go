package faults

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// The load of TestTraffic.
const (
	trafficRequests = 100_000
	trafficChanges  = 1000
	trafficClients  = 8
)

// TestTraffic: of 100,000 requests to an Ingress none fails while its paths change 1000 times, its backend is replaced, and coracle is restarted, killed, as a
// whole and by halves, and upgraded.
func TestTraffic(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Images: true, Service: true})
	h := c.Servers[0]
	replace(h, "")
	h.Kubectl("create", "ingress", "web", "--rule=web.test/*=web:80", "--rule=web.test/0=web:80")
	api, err := c.Client(h, hosts.OwnAPI)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + h.IP.String() + "/"
	class := verdicts.Class{Name: "traffic", Kinds: []string{"served"}, Long: 1}
	class.Each(t, func(t *testing.T, _ string, _ uint64, row *verdicts.Row) {
		hosts.Eventually(t, time.Minute, func() error {
			_, failed := h.Try("curl", "--fail", "--silent", "--header", "Host: web.test", url)
			return failed
		})
		began := time.Now()
		load := h.StartTraffic(url, "web.test", trafficClients)
		step := func(name string, do func()) {
			began, before, failedBefore := time.Now(), 0, 0
			before, failedBefore = load.Requests()
			do()
			all, failed := load.Requests()
			t.Logf("%s: %d of %d requests failed in %s", name, failed-failedBefore, all-before, time.Since(began).Round(time.Millisecond))
		}
		end := func(signal syscall.Signal) { // of the front, which is started again
			since := time.Now()
			if err := syscall.Kill(c.Running(h).FrontPID(), signal); err != nil {
				t.Fatal(err)
			}
			c.AwaitHealthy(since, 2*time.Minute)
		}
		gateway := gatewayOf(t, c.Running(h), 0)
		step("changes of paths", func() {
			for n := range trafficChanges {
				if _, err := api.NetworkingV1().Ingresses("default").Patch(t.Context(), "web", types.JSONPatchType, paths(n+1), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		step("a rolling update of the backend", func() { replace(h, "") })
		step("the same with a preStop hook", func() { replace(h, "lifecycle: {preStop: {sleep: {seconds: 2}}}") })
		step("the same without a preStop hook", func() { replace(h, "") })
		step("a restart", func() { end(syscall.SIGTERM) })
		gateway = gatewayOf(t, c.Running(h), gateway)
		step("kill -9", func() { end(syscall.SIGKILL) })
		gateway = gatewayOf(t, c.Running(h), gateway)
		for _, half := range []string{state.ControlPlane, state.Node} {
			step("kill -9 of "+half, func() {
				since := time.Now()
				pid, err := c.Running(h).ChildPID(half)
				if err == nil {
					err = syscall.Kill(pid, syscall.SIGKILL)
				}
				if err != nil {
					t.Fatal(err)
				}
				c.AwaitHealthy(since, 2*time.Minute)
			})
		}
		step("an upgrade", func() {
			h.Coracle("upgrade", "--insecure-unsigned", "--timeout=90s", "--hold=1s", hosts.Next(t))
		})
		gateway = gatewayOf(t, c.Running(h), gateway)
		step("the rest", func() {
			hosts.Eventually(t, 5*time.Minute, func() error {
				if all, _ := load.Requests(); all < trafficRequests {
					return fmt.Errorf("%d requests", all)
				}
				return nil
			})
		})
		requests, failures := load.Stop()
		t.Logf("the gateway's private memory is %.1f MiB at once", privateMiB(t, gateway))
		hosts.Eventually(t, 30*time.Second, func() error {
			if mib := privateMiB(t, gateway); mib > 30 {
				return fmt.Errorf("the gateway's private memory is %.1f MiB", mib)
			}
			return nil
		})
		t.Logf("and %.1f MiB after the load", privateMiB(t, gateway))
		killed := time.Now()
		if err := syscall.Kill(gateway, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		hosts.Eventually(t, time.Minute, func() error {
			_, err := h.Try("curl", "--fail", "--silent", "--header", "Host: web.test", url)
			return err
		})
		if took := time.Since(killed); took > 500*time.Millisecond {
			t.Errorf("the gateway answered %s after it was killed", took)
		} else {
			t.Logf("the gateway answered %s after it was killed", took)
		}
		row.Seconds, row.Seen = time.Since(began).Seconds(), fmt.Sprintf("%d of %d requests failed", len(failures), requests)
		t.Log(row.Seen)
		if len(failures) > 0 {
			t.Errorf("%d of %d requests failed: %s", len(failures), requests, strings.Join(failures[:min(20, len(failures))], "; "))
		}
	})
}

// gatewayOf waits until the gateway's process is another one than before, and that one has ended.
func gatewayOf(t *testing.T, s *hosts.Server, before int) (pid int) {
	t.Helper()
	hosts.Eventually(t, time.Minute, func() (err error) {
		if pid, err = s.ChildPID("gateway"); err == nil && pid == before {
			return fmt.Errorf("the gateway's process is still %d", pid)
		}
		if before > 0 && syscall.Kill(before, 0) == nil {
			return fmt.Errorf("the gateway's former process %d is still there", before)
		}
		return err
	})
	return pid
}

// privateMiB is the memory that a process shares with no other.
func privateMiB(t *testing.T, pid int) float64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	kib := 0
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "Private_") {
			n, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			kib += n
		}
	}
	return float64(kib) / 1024
}

// replace deploys the backend with more of its container's spec, and waits until all pods are new.
func replace(h *hosts.Host, more string) {
	h.Apply(fmt.Sprintf(trafficBackend, agnhost, more, time.Now().UnixNano()))
	h.Kubectl("rollout", "status", "deployment/web", "--timeout=3m")
}

// paths is a change of the Ingress's second path.
func paths(n int) []byte {
	return fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/rules/0/http/paths/1/path", "value": "/%d"}]`, n)
}

const trafficBackend = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: %s
        args: [netexec, --http-port=8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        %s
        env: [{name: DEPLOYED, value: "%d"}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`
