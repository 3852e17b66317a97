package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// staticPods run without an API server: one on the pod network, one on the host's.
const staticPods = `apiVersion: v1
kind: Pod
metadata: {name: still, namespace: default, labels: {app: web}}
spec:
  hostNetwork: ${HOST}
  terminationGracePeriodSeconds: 0
  containers:
  - name: ${NAME}
    image: coracle.test/busybox:1
    command: [sh, -c, 'mkdir /www && hostname > /www/name && exec busybox httpd -f -p 8080 -h /www']
`

// TestOffline reboots an agent while no server can be reached.
func TestOffline(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 1, Agents: 1, Images: true})
	testOffline(t, c, c.Agents[0], c.Servers)
}

// testOffline reboots a host alone, and the others later: while it is alone, its static pods run again; when the others
// are back, it is part of the cluster.
func testOffline(t *testing.T, c *hosts.Cluster, alone *hosts.Host, others []*hosts.Host) {
	for name, host := range map[string]string{"podnet": "false", "hostnet": "true"} {
		file := alone.Data("node", "static-pods", name+".yaml")
		text := strings.NewReplacer("${HOST}", host, "${NAME}", name, "name: still", "name: "+name).Replace(staticPods)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	running := func() error {
		out, err := alone.TryCoracle("crictl", "ps", "--state", "running")
		if err != nil {
			return err
		}
		for _, name := range []string{"podnet", "hostnet"} {
			if err := contains("running containers", out, name); err != nil {
				return err
			}
		}
		return nil
	}
	hosts.Eventually(t, 3*time.Minute, running)

	for _, h := range append(others, alone) {
		h.Kill()
	}
	began := time.Now()
	c.Boot(alone)
	hosts.Eventually(t, 3*time.Minute, running)
	t.Logf("static pods run %.1f s after the boot without a server", time.Since(began).Seconds())

	began = time.Now()
	for _, h := range others {
		c.Boot(h)
	}
	c.AwaitHealthy(began, 3*time.Minute)
	t.Logf("healthy %.1f s after the boot of the others", time.Since(began).Seconds())
	hosts.Eventually(t, 2*time.Minute, func() error {
		out, err := others[0].TryCoracle("kubectl", "get", "pods", "-o", "name")
		if err != nil {
			return err
		}
		return contains("pods", out, "pod/podnet-"+alone.Name)
	})
}
