package e2e

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/version"
	"github.com/coracle-dev/coracle/test/hosts"
)

// pauseOn is a pod on one node.
const pauseOn = `apiVersion: v1
kind: Pod
metadata: {name: on-NODE, labels: {app: pause}}
spec: {nodeName: NODE, terminationGracePeriodSeconds: 0, containers: [{name: c, image: "IMAGE", imagePullPolicy: Never}]}
`

// podStarts shows which containers run, and since when.
const podStarts = "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[*].containerID} {.status.containerStatuses[*].restartCount} {end}"

// testRotate issues all certificates of a server and of an agent again, while Secrets are written and read and a pod runs.
func testRotate(t *testing.T, c *hosts.Cluster) {
	server, agent := c.Servers[0], c.Agents[0]
	for _, h := range []*hosts.Host{server, agent} {
		server.Apply(strings.NewReplacer("NODE", h.Name, "IMAGE", version.PauseImage).Replace(pauseOn))
	}
	defer server.Kubectl("delete", "pod", "-l=app=pause")
	server.Kubectl("wait", "--for=condition=Ready", "--timeout=1m", "pod", "-l=app=pause")
	pods := func() string { return server.Kubectl("get", "pods", "-l=app=pause", "-o", podStarts) }
	running := pods()
	load := startSecretsLoad(t, c, server)
	defer func() { server.Kubectl("delete", "secrets", "--all") }()
	for _, h := range []*hosts.Host{server, agent} {
		before := ownCertificates(h)
		began := time.Now()
		var rotated []struct {
			Name   string
			Status string
		}
		if err := json.Unmarshal([]byte(h.Coracle("certificate", "rotate", "-o", "json")), &rotated); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d certificates after %.1f s", h.Name, len(rotated), time.Since(began).Seconds())
		after := ownCertificates(h)
		for name, was := range before {
			if (was == after[name]) != strings.HasSuffix(name, "ca") {
				t.Errorf("%s: %s is the same: %t", h.Name, name, was == after[name])
			}
		}
		for _, one := range rotated {
			if one.Status != "OK" {
				t.Errorf("%s: %s is %s", h.Name, one.Name, one.Status)
			}
		}
		if want := map[string]int{server.Name: 11, agent.Name: 3}[h.Name]; len(rotated) != want {
			t.Errorf("%s: %d certificates were issued, not %d", h.Name, len(rotated), want)
		}
		h.Coracle("wait", "--timeout", "1m")
	}
	if now := pods(); now != running {
		t.Errorf("pods were %s and are %s", running, now)
	}
	load.end(t)
	hosts.Eventually(t, 20*time.Second, func() error { // the API server trusts the kubelet's certificate, and the other way round
		_, err := server.TryCoracle("kubectl", "get", "--raw", "/api/v1/nodes/"+agent.Name+"/proxy/healthz")
		return err
	})
	before := ownCertificates(server)
	server.Coracle("certificate", "rotate", "--service", "scheduler,admin")
	maps.DeleteFunc(before, func(name, was string) bool { return was == ownCertificates(server)[name] })
	if len(before) != 2 || before["admin"] == "" || before["scheduler"] == "" {
		t.Errorf("with --service others were issued: %v", before)
	}
	if out, err := server.TryCoracle("certificate", "rotate", "--service", "no"); err == nil || !strings.Contains(err.Error(), `no service "no"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// ownCertificates returns until when the certificates of a host are valid, by their names.
func ownCertificates(h *hosts.Host) map[string]string {
	var list []struct{ Name, NotAfter string }
	all := map[string]string{}
	if err := json.Unmarshal([]byte(h.Coracle("certificate", "check", "-o", "json")), &list); err == nil {
		for _, one := range list {
			all[one.Name] = one.NotAfter
		}
	}
	return all
}
