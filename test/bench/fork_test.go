package bench

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	imageutils "k8s.io/kubernetes/test/utils/image"

	"github.com/coracle-dev/coracle/test/hosts"
)

// measureFork starts a local cluster with images and an app, which answers on a port of its node, in two ways: from
// nothing, and from a snapshot.
func measureFork(t *testing.T, wire *hosts.Wire, runs int, r *results) {
	h := hosts.New(t, wire, "forks", hosts.Options{})
	h.CopyImages()
	h.Coracle("kubectl", "version", "--client") // unpacks
	cold := []string{"up", "cold"}
	for _, image := range hosts.Images(t) {
		cold = append(cold, "--image", "/var/lib/coracle/images/"+filepath.Base(image))
	}
	do := func(args ...string) { h.Coracle(append(args, "--data-dir=/var/lib/coracle/clusters")...) }
	for i := range runs {
		began := time.Now()
		do(cold...)
		applyTo(t, h, "cold")
		answers(t, h, "cold")
		r.add("local cluster with an app that answers: from nothing", "s", 0, time.Since(began).Seconds())
		if i == 0 {
			began = time.Now()
			do("snapshot-cluster", "cold", "--to", "sealed")
			r.add("coracle snapshot-cluster", "s", 0, time.Since(began).Seconds())
		}
		do("down", "cold")

		before := used(t, h)
		began = time.Now()
		do("up", "fork", "--from", "sealed")
		answers(t, h, "fork")
		r.add("local cluster with an app that answers: from a snapshot", "s", 0, time.Since(began).Seconds())
		r.add("local cluster from a snapshot: its own disk space", "MB", 0, used(t, h)-before)
		do("down", "fork")
	}
	h.Kill()
}

// applyTo creates the app in a cluster.
func applyTo(t *testing.T, h *hosts.Host, cluster string) {
	t.Helper()
	app := h.Command(hosts.Bin(t), "kubectl", "--context", "coracle-"+cluster, "apply", "-f", "-")
	app.Stdin = strings.NewReader(strings.ReplaceAll(nodePortApp, "IMAGE", imageutils.GetE2EImage(imageutils.Agnhost)))
	if out, err := app.CombinedOutput(); err != nil {
		t.Fatalf("applying: %v: %s", err, out)
	}
}

// nodePortApp is three pods with a Service.
const nodePortApp = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: agnhost
        image: IMAGE
        args: [netexec, --http-port=8080]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
`

// answers waits until the app answers.
func answers(t *testing.T, h *hosts.Host, cluster string) {
	t.Helper()
	node := strings.Fields(h.Coracle("kubectl", "--context", "coracle-"+cluster, "get", "nodes", "-o", `jsonpath={.items[*].status.addresses[?(@.type=="InternalIP")].address}`))[0]
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := h.Get(fmt.Sprintf("http://%s:30080/hostname", node)); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("the app of %s does not answer: %v", cluster, err)
		}
	}
}

// used is the disk space of the host's data directory, in MB; a file with several names counts once.
func used(t *testing.T, h *hosts.Host) float64 {
	t.Helper()
	return number(t, "used "+h.Run("du", "-sk", "/var/lib/coracle"), "used") * 1024 / 1e6
}
