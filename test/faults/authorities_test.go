package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	imageutils "k8s.io/kubernetes/test/utils/image"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/verdicts"
)

const (
	// replacedWithin is how long it may take until all certificates are signed by new authorities, and droppedWithin until nobody uses the former ones:
	// pods get new tokens after eight of their ten minutes, and are then watched for a quarter of an hour.
	replacedWithin = 3 * time.Minute
	droppedWithin  = 40 * time.Minute
	afterwards     = 3 * time.Minute
)

// asker is a Deployment on a node, whose pod keeps a client of the API and asks every second.
const asker = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s}, spec: {selector: {matchLabels: {app: %[1]s}},
	template: {metadata: {labels: {app: %[1]s}}, spec: {nodeSelector: {kubernetes.io/hostname: %[2]s}, automountServiceAccountToken: false, containers: [{
		name: asker, image: %[3]q, args: [inclusterclient, --poll-interval=1],
		volumeMounts: [{name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}],
		volumes: [{name: token, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 600}},
			{configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}]}}]}}}}`

// TestNewAuthorities replaces all authorities of a cluster that is at work, and drops the former ones as soon as nobody uses them: no request of a client
// with a token fails, logs and exec reach all nodes, and nothing is restarted.
func TestNewAuthorities(t *testing.T) {
	skipUnlessLong(t)
	slots.Take(t)
	hosts.Bin(t)
	c := verdicts.Class{Name: "endurance", Kinds: []string{"new-authorities"}, Long: 1}
	c.Each(t, func(t *testing.T, _ string, _ uint64, row *verdicts.Row) {
		a := newArenaOf(t, hosts.Plan{Servers: 3, Agents: 2, Images: true}, func(*hosts.Host) {})
		server := a.Servers[0]
		for _, h := range a.Hosts() {
			server.Apply(fmt.Sprintf(web, "web-"+h.Name, 1, h.Name))
			server.Apply(fmt.Sprintf(asker, "asker-"+h.Name, h.Name, imageutils.GetE2EImage(imageutils.Agnhost)))
		}
		server.Kubectl("wait", "--for=condition=Available", "--timeout=5m", "deployment", "--all")
		w := a.tokenWriters()

		began := time.Now()
		t.Log(server.Coracle("certificate", "rotate-ca"))
		t.Logf("all servers sign with the new authorities after %.1f s", time.Since(began).Seconds())
		for _, h := range a.Hosts() {
			hosts.Eventually(t, replacedWithin, h.FormerlySigned)
			t.Logf("%s: all certificates are new after %.1f s", h.Name, time.Since(began).Seconds())
		}
		took := time.Since(began)
		if took > replacedWithin {
			t.Errorf("it took %s until all certificates were new", took)
		}
		for _, h := range a.Servers {
			a.reachNodes(t, h)
		}
		hosts.Eventually(t, droppedWithin, func() error {
			_, err := server.TryCoracle("certificate", "rotate-ca", "--finish")
			return err
		})
		finished := time.Since(began)
		t.Logf("the former ones are dropped after %s", finished.Round(time.Second))
		for end := time.Now().Add(afterwards); time.Now().Before(end); {
			for _, h := range a.Servers {
				a.reachNodes(t, h)
			}
		}
		row.Acknowledged = w.end(t)
		row.Seen = fmt.Sprintf("%d requests of clients with tokens; all certificates new after %.0f s, the former authorities dropped after %.0f min",
			row.Acknowledged, took.Seconds(), finished.Minutes())
		a.undisturbed(t, 2*len(a.Hosts()))
		for _, h := range a.Hosts() {
			log := server.Kubectl("logs", "deployment/asker-"+h.Name)
			if asked := strings.Count(log, "calling /healthz"); asked < int(finished.Seconds())*9/10 || strings.Contains(log, "status=failed") {
				t.Errorf("the pod on %s has asked %d times; the end of its log:\n%s", h.Name, asked, log[max(0, len(log)-2000):])
			}
		}
	})
}

// undisturbed checks that no process, and none of so many pods, was restarted, and that nothing was logged that people must look at.
func (a *arena) undisturbed(t *testing.T, pods int) {
	t.Helper()
	for _, h := range a.Hosts() {
		if n := a.Running(h).Restarts(); n > 0 {
			t.Errorf("%s: child processes were restarted %d times", h.Name, n)
		}
		for _, line := range a.Running(h).Errors() {
			t.Errorf("%s: %s", h.Name, line)
		}
	}
	out := a.Servers[0].Kubectl("get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}\n{end}")
	if strings.Count(out, " 0 true\n") != pods {
		t.Errorf("pods were restarted or are not ready:\n%s", out)
	}
}
