package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestBackup loses all servers of a cluster, restores a backup on a reinstalled machine, and joins the other
// reinstalled machines. The agent that ran all the time recovers without help.
func TestBackup(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 3, Agents: 1})
	first, second := c.Servers[0], c.Servers[1]
	second.Kubectl("create", "configmap", "before")
	deployed := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: deployed}\n"
	if err := os.WriteFile(second.Data("manifests", "mine.yaml"), []byte(deployed), 0o600); err != nil {
		t.Fatal(err)
	}
	second.Kubectl("wait", "configmap/deployed", "--for=create", "--timeout=3m")
	began := time.Now()
	t.Log(second.Coracle("etcd", "snapshot", "save", "/root/backup"))
	t.Logf("saved after %.1f s", time.Since(began).Seconds())
	second.Coracle("etcd", "snapshot", "list", "--check", "/root/backup")
	second.Kubectl("create", "configmap", "after")
	data, err := os.ReadFile(second.Path("/root/backup"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.TryCoracle("etcd", "snapshot", "restore", "--yes", "/root/backup"); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("restored while it runs: %v", err)
	}
	if _, err := c.Agents[0].TryCoracle("etcd", "snapshot", "save", "/root/backup"); err == nil || !strings.Contains(err.Error(), "is an agent") {
		t.Errorf("an agent saved: %v", err)
	}

	for _, h := range c.Servers {
		h.Kill()
		h.Wipe()
	}
	second.Boot()
	if err := os.WriteFile(second.Path("/root/backup"), data[:len(data)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := second.TryCoracle("etcd", "snapshot", "restore", "/root/backup"); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("restored a damaged backup: %v", err)
	}
	if err := os.WriteFile(second.Path("/root/backup"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	// The directory of backups is a file system of its own: two restores must both keep its content.
	snapshots := "/var/lib/coracle/server/snapshots"
	second.Run("sh", "-c", "mkdir -p "+snapshots+" && mount -t tmpfs tmpfs "+snapshots+" && cp /root/backup "+snapshots+"/")
	second.Coracle("etcd", "snapshot", "restore", "--yes", snapshots+"/backup")
	began = time.Now()
	t.Log(second.Coracle("etcd", "snapshot", "restore", "--yes", snapshots+"/backup"))
	second.Coracle("etcd", "snapshot", "list", "--check", snapshots+"/backup")
	second.Run("sh", "-c", "mountpoint "+snapshots+" && test -d /var/lib/coracle/server.before-restore/etcd")
	c.Provision(second)
	c.Start(second)
	second.Coracle("wait", "--timeout", "3m")
	t.Logf("restored and ready after %.1f s", time.Since(began).Seconds())
	if got := second.Kubectl("get", "configmaps", "-o", "name"); !strings.Contains(got, "before") || strings.Contains(got, "after") {
		t.Errorf("there are %s", got)
	}
	for _, h := range []*hosts.Host{first, c.Servers[2]} {
		h.Boot()
		c.Provision(h)
		h.Start("--server", "https://"+second.IP.String()+":6443", "--token-file", "/etc/coracle/token")
	}
	for _, h := range []*hosts.Host{first, c.Servers[2], c.Agents[0]} {
		h.Coracle("wait", "--timeout", "3m")
	}
	second.Kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=3m")
	if members := second.Coracle("etcd", "members"); strings.Count(members, "yes") != 3 {
		t.Errorf("members:\n%s", members)
	}
	// Manifests are not in a backup, so their directory is empty now. coracle must not delete the objects that were
	// made of them.
	second.Kubectl("get", "configmap", "deployed")
	// The agent gets this object through the restored cluster.
	second.Kubectl("label", "node", c.Agents[0].Name, "told=again")
	kubelet := []string{"kubectl", "--kubeconfig=/var/lib/coracle/node/etc/kubelet.kubeconfig", "get", "node", c.Agents[0].Name, "-o", "jsonpath={.metadata.labels.told}"}
	if told := c.Agents[0].Coracle(kubelet...); told != "again" {
		t.Errorf("the agent's kubelet reads the label told=%q, want again", told)
	}
	c.Agents[0].Coracle("status")
	t.Logf("all are back after %.1f s", time.Since(began).Seconds())
}
