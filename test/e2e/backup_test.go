package e2e

import (
	"fmt"
	"maps"
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
	passphrase := withPassphrase(t)
	prepare := func(h *hosts.Host) []string {
		if err := os.MkdirAll(h.Path("/mnt/copies"), 0o700); err != nil {
			t.Fatal(err)
		}
		return passphrase(h)
	}
	c := hosts.NewCluster(t, hosts.Plan{Servers: 3, Agents: 1, Prepare: prepare, ServerArgs: []string{"--etcd-snapshot-schedule-cron=@every 2s",
		"--etcd-snapshot-retention=2", "--etcd-snapshot-dir=/mnt/copies", "--etcd-s3", "--etcd-s3-config-secret=copies", "--etcd-s3-retention=3"}})
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
	s3, scheduled := bucketFlags(t, c.Agents[0], "9000"), bucketFlags(t, c.Agents[0], "9001")
	copyTo(t, s3.CA, second.Path("/root/ca.crt"))
	own := t.TempDir()
	t.Run("copies", func(t *testing.T) {
		t.Run("scheduled", func(t *testing.T) {
			t.Parallel()
			scheduledCopies(t, c.For(t), scheduled)
		})
		t.Run("by hand", func(t *testing.T) {
			t.Parallel()
			copiesByHand(t, c.For(t).Servers[1], s3, identity, own)
		})
	})
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
	if err := os.CopyFS(second.Path("/root/own"), os.DirFS(own)); err != nil {
		t.Fatal(err)
	}
	killedRestore(t, second, token, "/root/own")
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
	killAt(t, second, appears(second.Data(".snapshot-*", "*")), append(restore, "--identity=/root/key")...)
	killAt(t, second, appears(second.Data("server.restoring", "*")), "etcd", "snapshot", "restore", "--yes", token, "/root/backup")
	if left := unfinishedRestores(second); len(left) != 2 {
		t.Errorf("killed restores have left only %v", left)
	}
	for _, h := range []*hosts.Host{first, c.Servers[2]} { // they wait for the one that has the data
		h.Boot()
		c.Provision(h)
		h.Start("--server", "https://"+second.IP.String()+":6443", "--token-file", "/etc/coracle/token", passphraseFlag)
	}
	c.Start(second)
	second.Coracle("wait", "--timeout", "3m")
	t.Logf("restored and ready after %.1f s", time.Since(began).Seconds())
	checkTreasure(t, second)
	if left := unfinishedRestores(second); len(left) > 0 {
		t.Errorf("after a start there still are %v", left)
	}
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

func bucketFlags(t *testing.T, h *hosts.Host, port string) bucket {
	t.Helper()
	s := buckets.Start(t, h, h.IP.String()+":"+port, registries.NewAuthority(t, "s3"))
	return bucket{s, []string{"--etcd-s3", "--etcd-s3-endpoint=" + s.Addr, "--etcd-s3-endpoint-ca=/root/ca.crt", "--etcd-s3-bucket=" + s.Bucket,
		"--etcd-s3-folder=edge", "--etcd-s3-access-key=" + s.Access, "--etcd-s3-secret-key=" + s.Secret}}
}

// below are the objects in a folder.
func (b bucket) below(folder string) map[string]int64 {
	all := b.Files()
	maps.DeleteFunc(all, func(path string, _ int64) bool { return !strings.HasPrefix(path, folder) })
	return all
}

// size is the size of the objects of copies that are made by hand, in bytes.
func (b bucket) size() (sum int64) {
	for _, size := range b.below("edge/") {
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

// copiesByHand makes backups in the directory, in the bucket for the owner of a key, and in a directory of its own, whose content it copies to own.
func copiesByHand(t *testing.T, h *hosts.Host, s bucket, identity *age.X25519Identity, own string) {
	t.Helper()
	recipient := identity.Recipient().String()
	for _, limit := range []int64{50 << 20, 1 << 20} { // the second copy costs only what has changed
		before := s.size()
		t.Log(h.Coracle(append([]string{"etcd", "snapshot", "save", "--etcd-snapshot-recipient", recipient}, s.flags...)...))
		if sent := s.size() - before; sent == 0 || sent > limit {
			t.Errorf("a copy has put %d bytes into the bucket", sent)
		}
	}
	bucketKeeps(t, h, s.flags...)
	if err := os.WriteFile(h.Path("/root/key"), []byte(identity.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	killedCopies(t, h, s, recipient)
	twoCopies(t, h)
	ownDirectory(t, h, own)
}

// scheduledCopies wants that a server makes copies by schedule, tries each, keeps two, and three in the bucket that a Secret names, and tells the cluster of
// them.
func scheduledCopies(t *testing.T, c *hosts.Cluster, s bucket) {
	t.Helper()
	h := c.Servers[0]
	wantFailed(t, h, `reading --etcd-s3-config-secret: secrets "copies" not found`)
	copyTo(t, s.CA, h.Path("/root/ca.crt"))
	h.Kubectl("-n", "kube-system", "create", "secret", "generic", "copies", "--from-literal=etcd-s3-endpoint="+s.Addr, "--from-file=etcd-s3-endpoint-ca=/root/ca.crt",
		"--from-literal=etcd-s3-bucket="+s.Bucket, "--from-literal=etcd-s3-folder=scheduled", "--from-literal=etcd-s3-access-key="+s.Access, "--from-literal=etcd-s3-secret-key="+s.Secret)
	seen := map[string]bool{}
	hosts.Eventually(t, time.Minute, func() error {
		list, err := listCopies(t, h)
		if err != nil {
			return err
		}
		there := 0
		for _, c := range list {
			if c.Error != "" {
				t.Errorf("%s: %s", c.Name, c.Error)
			}
			seen[c.Name] = seen[c.Name] || !c.Tried.IsZero()
			if c.inBucket() {
				there++
			}
		}
		if here := len(list) - there; len(seen) < 4 || here > 3 || there < 3 || there > 4 { // the third here and the fourth there are being made
			return fmt.Errorf("of %d copies there are %d here and %d in the bucket", len(seen), here, there)
		}
		return nil
	})
	wantGood(t, h)
	hosts.Eventually(t, time.Minute, func() error {
		here, there := 0, 0
		for key, where := range toldCopies(t, h, h.Name) {
			name := "/etcd-snapshot-" + h.Name + "-"
			switch {
			case strings.HasPrefix(key, "local-") && strings.HasPrefix(where, "file:///mnt/copies"+name):
				here++
			case strings.HasPrefix(key, "s3-") && strings.HasPrefix(where, "s3://copies/scheduled/") && strings.Contains(where, name):
				there++
			default:
				return fmt.Errorf("the cluster knows of %s in %s", key, where)
			}
		}
		if here != 2 || there != 3 {
			return fmt.Errorf("the cluster knows of %d copies here and %d in the bucket", here, there)
		}
		return nil
	})
	if events := h.Kubectl("get", "events", "--field-selector=reason=EtcdSnapshotSaved"); !strings.Contains(events, "is written and tried") {
		t.Errorf("there are these Events:\n%s", events)
	}
	failedCopies(t, c, h, s)
}
