package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/machines"
	"github.com/coracle-dev/coracle/test/slots"
	"github.com/coracle-dev/coracle/test/upgrade/stage"
	"github.com/coracle-dev/coracle/test/verdicts"
)

// released is the executable of the release before, on a machine.
const released = machines.Coracle + "/before/coracle"

// TestVersions upgrades from the release before, and tries to go back to it.
func TestVersions(t *testing.T) {
	if _, err := os.Stat(filepath.Join(filepath.Dir(hosts.Bin(t)), "before", "coracle")); err != nil {
		t.Skip("the release before is not there: scripts/faults has scripts/before build it")
	}
	slots.Take(t)
	site := machines.Open(t)
	class := verdicts.Class{Name: "versions", Kinds: []string{"rolling-upgrade", "downgrade-refused", "backup-of-older"}, Short: 1, Long: 1}
	class.Each(t, func(t *testing.T, kind string, seed uint64, row *verdicts.Row) {
		switch kind {
		case "rolling-upgrade":
			roll(t, site, row)
			return
		case "backup-of-older":
			restoreOlder(t, site, row)
			return
		}
		s := stage.InstallFile(t, site, stage.Newer, "newer", "server")
		began := time.Now()
		s.RefusesOlder(t, released)
		row.Seconds, row.Seen = time.Since(began).Seconds(), "nothing changed"
	})
}

// restoreOlder restores a backup that the release before has made, on an empty machine.
func restoreOlder(t *testing.T, site *machines.Site, row *verdicts.Row) {
	older := stage.InstallFile(t, site, released, "older", "server")
	older.Kubectl("create", "secret", "generic", "treasure", "--from-literal=word=plaintext-swordfish")
	backup := older.Sh(`coracle etcd snapshot save /root/backup >&2; base64 /root/backup`)
	older.Run("systemctl", "stop", "coracle")
	s := stage.Server{Machine: site.Boot(t, "empty", machines.Options{})}
	s.Write("/root/backup.base64", backup)
	began := time.Now()
	s.Sh(`base64 -d /root/backup.base64 >/root/backup
		` + machines.Bin + ` etcd snapshot restore /root/backup
		` + machines.Bin + ` install -- server >&2`)
	row.Seconds = time.Since(began).Seconds()
	if word := s.Kubectl("get", "secret", "treasure", "-o", "jsonpath={.data.word}"); word != "cGxhaW50ZXh0LXN3b3JkZmlzaA==" {
		t.Errorf("the Secret is %q", word)
	}
	staysPlain(t, s)
}

// staysPlain fails the test unless a cluster of the release before keeps its Secrets as they are until somebody enables their encryption.
func staysPlain(t *testing.T, s stage.Server) {
	t.Helper()
	stored := func(name, word string) string {
		s.Kubectl("create", "secret", "generic", name, "--from-literal=word="+word)
		found, _ := s.Try("grep", "-rlaF", word, "/var/lib/coracle/server/etcd/member")
		return found
	}
	if status := s.Run("coracle", "secrets-encrypt", "status"); !strings.Contains(status, "Encryption Status: Disabled") || stored("plain", "plain-herring") == "" {
		t.Errorf("Secrets are encrypted, and nobody has asked for it:\n%s", status)
	}
	t.Log(s.Run("coracle", "secrets-encrypt", "enable"))
	if status := s.Run("coracle", "secrets-encrypt", "status"); !strings.Contains(status, "Encryption Status: Enabled") {
		t.Error(status)
	}
	if found := stored("sealed", "sealed-herring"); found != "" {
		t.Errorf("a new Secret is readable in %s", found)
	}
}

// fleet is a cluster of machines with installed coracles.
type fleet struct {
	t       *testing.T
	site    *machines.Site
	first   stage.Server
	servers []stage.Server
	all     []stage.Server // the agent is the last
}

// roll upgrades three servers and an agent, one after the other, while clients write to all servers. Pods keep running, and those on machines of both
// releases reach each other.
func roll(t *testing.T, site *machines.Site, row *verdicts.Row) {
	f := newFleet(t, site)
	f.first.Sh(`coracle kubectl apply -f - <<'END'
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec: {selector: {matchLabels: {on: each}}, template: {metadata: {labels: {on: each, app: web}}, spec: {terminationGracePeriodSeconds: 0, containers: [
  {name: web, image: '` + agnhost + `', command: [/agnhost, netexec], readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}}]}}}
END
		coracle kubectl create service clusterip web --tcp=80:8080
		coracle kubectl rollout status daemonset web --timeout=300s`)
	f.first.Keep(t)
	f.reach()
	var clients []*client
	for _, s := range f.servers {
		c, err := newClient(s.Name, f.config(s), &gate{})
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	l, err := begin(t.Context(), "rolling", clients, normal)
	if err != nil {
		t.Fatal(err)
	}
	from, began := l.seen.now(), time.Now()
	for _, s := range f.all {
		f.upgrade(s)
	}
	row.Seconds = time.Since(began).Seconds()
	to := l.seen.now()
	ops := l.end()
	v := check(ops, f.views(l)...)
	v.gap = longestGap(ops, from, to, func(o op) bool { return o.kind == create }).length()
	t.Logf("%s; no server acknowledged a write for %s", v, short(v.gap))
	for _, problem := range v.problems() {
		t.Error(problem)
	}
	row.Acknowledged, row.Lost, row.Gap = v.acknowledged, len(v.lost), v.gap.Seconds()
	f.first.Kept(t)
	staysPlain(t, f.first)
	if members := f.first.Run("coracle", "etcd", "members"); strings.Count(members, "yes") != len(f.servers) {
		t.Errorf("members:\n%s", members)
	}
}

// newFleet installs the release before.
func newFleet(t *testing.T, site *machines.Site) *fleet {
	t.Helper()
	f := &fleet{t: t, site: site, first: stage.InstallFile(t, site, released, "server-1", "server")}
	f.all = []stage.Server{f.first}
	for _, m := range [][2]string{{"server-2", "server"}, {"server-3", "server"}, {"worker", "agent"}} {
		token := f.first.Run("coracle", "token", "create", "--role", m[1])
		f.all = append(f.all, stage.InstallFile(t, site, released, m[0], m[1], "--server", "https://"+f.first.IP()+":6443", "--token", token))
	}
	f.servers = f.all[:3]
	for _, s := range f.all {
		s.Sh(`coracle images import /mnt/images/*.tar >/dev/null`)
	}
	f.first.Kubectl("wait", "nodes", "--all", "--for=condition=Ready", "--timeout=2m")
	return f
}

// upgrade upgrades a machine with the command of the release before, and creates a pod there.
func (f *fleet) upgrade(s stage.Server) {
	f.t.Helper()
	const containers = `coracle crictl ps -q --label io.kubernetes.container.name=web | sort`
	before, began := s.Sh(containers), time.Now()
	s.Run("coracle", "upgrade", "--hold=3s", stage.Newer)
	took := time.Since(began)
	if got := s.Running(); got == s.Version {
		f.t.Errorf("%s still runs %s", s.Name, got)
	}
	if after := s.Sh(containers); after != before || before == "" {
		f.t.Errorf("the containers on %s were\n%s\nand are\n%s", s.Name, before, after)
	}
	name := "on-" + s.Name
	f.first.Sh(`coracle kubectl run ` + name + ` --labels=app=web --image=` + agnhost + ` --overrides='{"spec": {"nodeName": "` + s.Name + `"}}' --command -- /agnhost netexec
		coracle kubectl wait pod/` + name + ` --for=condition=Ready --timeout=120s
		coracle kubectl wait nodes --all --for=condition=Ready --timeout=120s`)
	f.reach()
	f.t.Logf("upgraded %s in %.1f s", s.Name, took.Seconds())
}

// reach fails the test unless each machine reaches each pod, and their Service.
func (f *fleet) reach() {
	f.t.Helper()
	addresses := f.first.Sh(`coracle kubectl get pods -l app=web -o 'jsonpath={range .items[*]}{.status.podIP}:8080 {end}'
		coracle kubectl get service web -o 'jsonpath={.spec.clusterIP}'`)
	for _, s := range f.all {
		for _, address := range strings.Fields(addresses) {
			hosts.Eventually(f.t, 20*time.Second, func() error {
				if out, err := s.Try("curl", "--silent", "--fail", "--max-time", "3", "http://"+address+"/hostname"); err != nil {
					return fmt.Errorf("%s does not reach %s: %w %s", s.Name, address, err, out)
				}
				return nil
			})
		}
	}
}

// config is a client configuration for a server's API.
func (f *fleet) config(s stage.Server) *rest.Config {
	f.t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(f.first.Run("cat", "/etc/coracle/kubeconfig.yaml")))
	if err != nil {
		f.t.Fatal(err)
	}
	config.Host, config.Dial = "https://"+s.IP()+":6443", f.site.Engine.Host.Dial
	config.QPS, config.Burst = 1000, 1000
	return config
}

// views returns the load's objects as each server shows them.
func (f *fleet) views(l *load) (out []map[string]string) {
	f.t.Helper()
	for _, s := range f.servers {
		set, err := kubernetes.NewForConfig(f.config(s))
		if err != nil {
			f.t.Fatal(err)
		}
		out = append(out, l.view(f.t, s.Name, set))
	}
	return out
}
