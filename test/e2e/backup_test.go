package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/coracle-dev/coracle/test/buckets"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestBackup loses all servers of a cluster, restores a backup on a reinstalled machine, and starts the other
// reinstalled machines at the same time. The agent that ran all the time recovers without help.
func TestBackup(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 3, Agents: 1, Prepare: withPassphrase(t), ServerArgs: []string{"--etcd-snapshot-schedule-cron=@every 2s", "--etcd-snapshot-retention=2"}})
	first, second := c.Servers[0], c.Servers[1]
	second.Kubectl("create", "configmap", "before")
	createTreasure(second)
	deployed := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: deployed}\n"
	if err := os.WriteFile(second.Data("manifests", "mine.yaml"), []byte(deployed), 0o600); err != nil {
		t.Fatal(err)
	}
	second.Kubectl("wait", "configmap/deployed", "--for=create", "--timeout=3m")
	began := time.Now()
	t.Log(second.Coracle("etcd", "snapshot", "save", "/root/backup"))
	t.Logf("saved after %.1f s", time.Since(began).Seconds())
	second.Coracle("etcd", "snapshot", "list", "--check", "/root/backup")
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s3 := bucketFlags(t, c.Agents[0])
	copyTo(t, s3.CA, second.Path("/root/ca.crt"))
	for _, limit := range []int64{50 << 20, 1 << 20} { // the second copy costs only what has changed
		before := s3.size()
		t.Log(second.Coracle(append([]string{"etcd", "snapshot", "save", "--etcd-snapshot-recipient", identity.Recipient().String()}, s3.flags...)...))
		if sent := s3.size() - before; sent == 0 || sent > limit {
			t.Errorf("a copy has put %d bytes into the bucket", sent)
		}
	}
	scheduledCopies(t, first)
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
	if _, err := second.TryCoracle("etcd", "snapshot", "restore", "/root/backup"); err == nil || !strings.Contains(err.Error(), "give that one with --token-file") {
		t.Errorf("restored without the token: %v", err)
	}
	c.Provision(second)
	const token = "--token-file=/etc/coracle/token"
	if _, err := second.TryCoracle("etcd", "snapshot", "restore", token, "/root/backup"); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("restored a damaged backup: %v", err)
	}
	if err := os.WriteFile(second.Path("/root/backup"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	// The directory of backups is a file system of its own: two restores must both keep its content.
	snapshots := "/var/lib/coracle/server/snapshots"
	second.Run("sh", "-c", "mkdir -p "+snapshots+" && mount -t tmpfs tmpfs "+snapshots+" && cp /root/backup "+snapshots+"/")
	second.Coracle("etcd", "snapshot", "restore", "--yes", token, snapshots+"/backup")
	second.Coracle("etcd", "snapshot", "list", "--check", token, snapshots+"/backup")

	// The same with nothing but the bucket and the private key.
	copyTo(t, s3.CA, second.Path("/root/ca.crt"))
	restore := append([]string{"etcd", "snapshot", "restore", "--yes"}, s3.flags...)
	if _, err := second.TryCoracle(restore...); err == nil || !strings.Contains(err.Error(), "--identity FILE") {
		t.Errorf("restored without the private key: %v", err)
	}
	if err := os.WriteFile(second.Path("/root/key"), []byte(identity.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	t.Log(second.Coracle(append(restore, "--identity=/root/key")...))
	second.Run("sh", "-c", "mountpoint "+snapshots+" && test -d /var/lib/coracle/server.before-restore/etcd && ! ls -d /var/lib/coracle/.snapshot-*")
	for _, h := range []*hosts.Host{first, c.Servers[2]} { // they wait for the one that has the data
		h.Boot()
		c.Provision(h)
		h.Start("--server", "https://"+second.IP.String()+":6443", "--token-file", "/etc/coracle/token", passphraseFlag)
	}
	c.Start(second)
	second.Coracle("wait", "--timeout", "3m")
	t.Logf("restored and ready after %.1f s", time.Since(began).Seconds())
	checkTreasure(t, second)
	if got := second.Kubectl("get", "configmaps", "-o", "name"); !strings.Contains(got, "before") || strings.Contains(got, "after") {
		t.Errorf("there are %s", got)
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

// bucket is a server of S3 with TLS, and the flags for it.
type bucket struct {
	*buckets.Server
	flags []string
}

func bucketFlags(t *testing.T, h *hosts.Host) bucket {
	t.Helper()
	s := buckets.Start(t, h, h.IP.String()+":9000", registries.NewAuthority(t, "s3"))
	return bucket{s, []string{"--etcd-s3", "--etcd-s3-endpoint=" + s.Addr, "--etcd-s3-endpoint-ca=/root/ca.crt", "--etcd-s3-bucket=" + s.Bucket,
		"--etcd-s3-folder=edge", "--etcd-s3-access-key=" + s.Access, "--etcd-s3-secret-key=" + s.Secret}}
}

// size is the size of all objects in bytes.
func (b bucket) size() (sum int64) {
	for _, size := range b.Files() {
		sum += size
	}
	return sum
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// scheduledCopies wants that a server makes copies by schedule, tries each, keeps two, and tells the cluster of them.
func scheduledCopies(t *testing.T, h *hosts.Host) {
	t.Helper()
	type copy struct {
		Name, Error string
		Tried       time.Time
	}
	seen := map[string]bool{}
	hosts.Eventually(t, time.Minute, func() error {
		var list []copy
		if err := json.Unmarshal([]byte(h.Coracle("etcd", "snapshot", "list", "-o", "json")), &list); err != nil {
			return err
		}
		for _, c := range list {
			if c.Error != "" {
				t.Errorf("%s: %s", c.Name, c.Error)
			}
			seen[c.Name] = seen[c.Name] || !c.Tried.IsZero()
		}
		if len(seen) < 3 || len(list) > 3 { // the third is being made
			return fmt.Errorf("of %d copies there are %d", len(seen), len(list))
		}
		return nil
	})
	if told := h.Kubectl("-n", "kube-system", "get", "configmap", "coracle-etcd-snapshots", "-o", "yaml"); !strings.Contains(told, "etcd-snapshot-"+h.Name) ||
		!strings.Contains(told, "on-demand-") && !strings.Contains(told, "location") {
		t.Errorf("the cluster knows of these copies:\n%s", told)
	}
	metrics := h.Kubectl("get", "--raw", "/api/v1/nodes/"+h.Name+"/proxy/metrics")
	if !strings.Contains(metrics, "\ncoracle_etcd_snapshot_last_failed 0\n") || strings.Contains(metrics, "\ncoracle_etcd_snapshot_last_size_bytes 0\n") {
		t.Error("the kubelet's metrics do not tell of the copies")
	}
	if status := h.Coracle("status"); !strings.Contains(status, "Backup:       /var/lib/coracle/server/snapshots/etcd-snapshot-") {
		t.Errorf("status does not tell of the copies:\n%s", status)
	}
	if events := h.Kubectl("get", "events", "--field-selector=reason=EtcdSnapshotSaved"); !strings.Contains(events, "is written and tried") {
		t.Errorf("there are these Events:\n%s", events)
	}
}
