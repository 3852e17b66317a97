package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// awaited limits the time until a change is visible.
const awaited = 90 * time.Second

// findsSoon runs doctor until its report has a row as in finds.
func findsSoon(t *testing.T, h *hosts.Host, result check.Result, name string, texts ...string) {
	t.Helper()
	hosts.Eventually(t, awaited, func() error {
		r := report(t, h, "doctor", "--only", name)
		for _, row := range r.Rows {
			text := row.Finding + "; fix: " + row.Fix
			if row.Result == result && !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(text, s) }) {
				return nil
			}
		}
		return fmt.Errorf("%s: no %s of %s with %q in %+v", h.Name, result, name, texts, r.Rows)
	})
}

// TestDoctor breaks a cluster in many ways, one after the other, and checks that doctor names each.
func TestDoctor(t *testing.T) {
	slots.Take(t)
	c := hosts.NewCluster(t, hosts.Plan{Servers: 3, Agents: 1, Images: true})
	server, agent := c.Servers[0], c.Agents[0]
	allWell(t, server, agent)
	t.Run("network", func(t *testing.T) { doctorNetwork(t, c.For(t), agent) })
	t.Run("names", func(t *testing.T) { doctorNames(t, agent.For(t)) })
	t.Run("workload", func(t *testing.T) { doctorWorkload(t, c.For(t), server) })
	t.Run("certificate", func(t *testing.T) { doctorCertificate(t, server.For(t)) })
	t.Run("image", func(t *testing.T) { doctorImage(t, agent.For(t)) })
	t.Run("processes", func(t *testing.T) { doctorProcesses(t, c.For(t), agent) })
	t.Run("servers", func(t *testing.T) { doctorServers(t, c.For(t)) })
}

// allWell waits until doctor finds no problem on the hosts; some tunnels may still be connecting.
func allWell(t *testing.T, all ...*hosts.Host) {
	t.Helper()
	for _, h := range all {
		hosts.Eventually(t, awaited, func() error {
			return unwell(report(t, h, "doctor"))
		})
	}
}

// testDoctor expects no problem with any kind of network.
func (n *network) testDoctor(t *testing.T) { allWell(t, n.Hosts()...) }

func doctorNetwork(t *testing.T, c *hosts.Cluster, agent *hosts.Host) {
	agent = agent.For(t)
	other := c.Servers[1]
	c.Links.Cut(agent, other)
	hosts.Eventually(t, awaited, func() error { // on a busy machine a probe of another node may be late
		r := report(t, agent, "doctor", "--only", "pod-network,dns")
		if n := strings.Count(fmt.Sprint(r.Rows), "cannot be reached"); n != 1 {
			return fmt.Errorf("%d nodes cannot be reached, and one was cut off: %+v", n, r.Rows)
		}
		finds(t, r, check.Fail, "pod-network", "the pods of node "+other.Name, "cannot be reached from here", "ping "+other.IP.String(), "8472")
		return nil
	})
	findsSoon(t, agent, check.Fail, "servers", other.IP.String())
	c.Links.Heal()
	findsSoon(t, agent, check.OK, "pod-network", "3 other nodes")

	other.Run("ip", "link", "set", "eth0", "mtu", "900")
	findsSoon(t, agent, check.Fail, "pod-network", "packets of 1450 bytes do not come through to the pods of node "+other.Name)
	other.Run("ip", "link", "set", "eth0", "mtu", "1500")

	agent.Run("nft", "add table inet mine; add chain inet mine in { type filter hook input priority 0; policy accept; }; add rule inet mine in udp dport 8472 drop")
	r := report(t, agent, "doctor", "--only", "pod-network,firewall")
	for _, s := range c.Servers {
		finds(t, r, check.Fail, "pod-network", "the pods of node "+s.Name)
	}
	agent.Run("nft", "delete table inet mine")

	c.Links.Isolate(agent)
	findsSoon(t, agent, check.Fail, "api", "does not answer")
	r = report(t, agent, "doctor")
	finds(t, r, check.OK, "kubelet")
	finds(t, r, check.Fail, "servers", "nc -vz")
	finds(t, r, check.Fail, "pod-network", "with pods in 10.42.")
	finds(t, r, check.Skipped, "pods", "the API does not answer")
	c.Links.Heal()
	findsSoon(t, agent, check.OK, "api")
}

// doctorNames uses a dead name server, and one that is the cluster's DNS itself.
func doctorNames(t *testing.T, agent *hosts.Host) {
	good := agent.Run("cat", "/etc/resolv.conf")
	agent.Run("sh", "-c", "echo nameserver 172.30.0.77 > /etc/resolv.conf")
	findsSoon(t, agent, check.Warn, "dns", "names outside the cluster do not resolve", "172.30.0.77")
	finds(t, report(t, agent, "doctor", "--only", "name-servers"), check.Warn, "name-servers", "172.30.0.77 does not answer")

	listens := strings.Fields(agent.Run("sh", "-c", "ip -4 -o addr show cni0 | tr / ' '"))[3]
	agent.Run("nft", "add table ip mine; add chain ip mine out { type nat hook output priority -100; }; "+
		"add rule ip mine out ip daddr 172.30.0.77 udp dport 53 dnat to "+listens+":10053")
	agent.Run("sh", "-c", "echo nameserver 172.30.0.78 > /etc/resolv.conf; sleep 3; echo nameserver 172.30.0.77 > /etc/resolv.conf") // DNS sees the change within 2 s and repeats the test for a loop
	findsSoon(t, agent, check.Fail, "dns-loop", "172.30.0.77", "asks the cluster's DNS: a loop")
	agent.Run("nft", "delete table ip mine")
	agent.Run("sh", "-c", "echo '"+good+"' > /etc/resolv.conf")
	findsSoon(t, agent, check.OK, "dns")
}

func doctorWorkload(t *testing.T, c *hosts.Cluster, server *hosts.Host) {
	server = server.For(t)
	server.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: no-image, namespace: default}
spec: {containers: [{name: c, image: "coracle.test/missing:1", imagePullPolicy: Never}]}
---
apiVersion: v1
kind: Pod
metadata: {name: no-node, namespace: default}
spec: {nodeSelector: {nothing: like-this}, containers: [{name: c, image: "coracle.test/missing:1"}]}
`)
	if err := os.WriteFile(server.Data("manifests/bad.yaml"), []byte("kind: Nonsense\napiVersion: v1\nmetadata: {name: x}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	findsSoon(t, server, check.Warn, "pods", "default/no-image", "ErrImageNeverPull", "describe pod no-image")
	findsSoon(t, server, check.Warn, "pods", "default/no-node", "no node takes it")
	hosts.Eventually(t, awaited, func() error {
		return contains("manifests", fmt.Sprint(report(t, server, "doctor", "--only", "manifests").Rows), "bad.yaml")
	})
	server.Kubectl("delete", "pod", "no-image", "no-node", "--now")
	if err := os.Remove(server.Data("manifests/bad.yaml")); err != nil {
		t.Fatal(err)
	}
}

func doctorCertificate(t *testing.T, server *hosts.Host) {
	dir := server.Data("server/pki")
	file := filepath.Join(dir, "scheduler.crt")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(file, good, 0o644); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(file, foreignCert(t, time.Now().Add(-time.Hour)), 0o644); err != nil {
		t.Fatal(err)
	}
	finds(t, report(t, server, "doctor", "--only", "certificates"), check.Fail, "certificates", "certificate scheduler has expired", "restart coracle")
	if err := os.WriteFile(file, foreignCert(t, time.Now().AddDate(1, 0, 0)), 0o644); err != nil {
		t.Fatal(err)
	}
	finds(t, report(t, server, "doctor", "--only", "certificates"), check.Fail, "certificates", "certificate scheduler and its key", "do not belong together")
}

// foreignCert is a certificate of another authority.
func foreignCert(t *testing.T, until time.Time) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// doctorImage deletes content of containerd's store, like a broken disk.
func doctorImage(t *testing.T, agent *hosts.Host) {
	blobs := agent.Data("node/containerd/io.containerd.content.v1.content/blobs/sha256")
	all, err := os.ReadDir(blobs)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d blobs, %v", len(all), err)
	}
	away := t.TempDir()
	for _, e := range all {
		if err := os.Rename(filepath.Join(blobs, e.Name()), filepath.Join(away, e.Name())); err != nil {
			copyAway(t, filepath.Join(blobs, e.Name()), filepath.Join(away, e.Name()))
		}
	}
	finds(t, report(t, agent, "doctor", "--only", "images"), check.Fail, "images", "is not complete", "import it again")
	for _, e := range all {
		copyAway(t, filepath.Join(away, e.Name()), filepath.Join(blobs, e.Name()))
	}
	finds(t, report(t, agent, "doctor", "--only", "images"), check.OK, "images", "all complete")
}

// copyAway moves a file from one file system to another.
func copyAway(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o444)
	}
	if err == nil {
		err = os.Remove(from)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func doctorProcesses(t *testing.T, c *hosts.Cluster, agent *hosts.Host) {
	agent = agent.For(t)
	node, err := c.Running(agent).ChildPID("node")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(node, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r := report(t, agent, "doctor")
	finds(t, r, check.Fail, "processes", "the process node", "does nothing", "kill -CONT")
	finds(t, r, check.Fail, "kubelet")
	finds(t, r, check.Fail, "container-runtime")
	if err := syscall.Kill(node, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(node, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	findsSoon(t, agent, check.Warn, "restarts", "the process node was restarted once", "was killed")
	findsSoon(t, agent, check.OK, "api")
	hosts.Eventually(t, awaited, func() error { // its kubelet has just been restarted
		r := report(t, agent, "doctor", "--node", "--only", "nodes")
		if r.Result != check.OK {
			return fmt.Errorf("%+v", r.Rows)
		}
		return contains("nodes", fmt.Sprint(r.Rows), "1 Ready")
	})

	if err := c.Running(agent).Stop(); err != nil {
		t.Error(err)
	}
	r = report(t, agent, "doctor")
	finds(t, r, check.Fail, "processes", "coracle does not run here", "systemctl start coracle")
	finds(t, r, check.Skipped, "kubelet", "coracle does not run here")
	c.Start(agent)
}

// doctorServers freezes servers until there is no quorum.
func doctorServers(t *testing.T, c *hosts.Cluster) {
	server, second, third := c.Servers[0], c.Servers[1], c.Servers[2]
	third.Freeze()
	r := report(t, server, "doctor")
	finds(t, r, check.Fail, "etcd", "etcd's member "+third.Name+" does not answer", "coracle etcd remove "+third.Name)
	finds(t, r, check.Fail, "servers", third.IP.String())
	finds(t, r, check.OK, "pod-network") // the kernel still forwards packets
	second.Freeze()
	r = report(t, server, "doctor")
	finds(t, r, check.Fail, "etcd", "etcd has no quorum (1 of 3 members answer)", "reset-quorum")
	finds(t, r, check.OK, "kubelet")
	findsSoon(t, server, check.Fail, "api", "check etcd")
	second.Thaw()
	third.Thaw()
	findsSoon(t, server, check.OK, "etcd", "3 of 3 members answer")

	child, err := c.Running(server).ChildPID("control-plane")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r = report(t, server, "doctor")
	finds(t, r, check.Fail, "processes", "the process control-plane", "does nothing")
	finds(t, r, check.Fail, "etcd", "its process does nothing")
	finds(t, r, check.Fail, "servers", server.IP.String(), "it is this machine's")
	if err := syscall.Kill(child, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	hosts.Eventually(t, awaited, func() error { // a process that was frozen may be restarted
		return alarm(c, second, pb.AlarmRequest_ACTIVATE)
	})
	findsSoon(t, second.For(t), check.Fail, "etcd", "alarm NOSPACE of "+second.Name, "refuses writes", "coracle etcd defrag")
	hosts.Eventually(t, awaited, func() error { return alarm(c, second, pb.AlarmRequest_DEACTIVATE) })
}

// alarm makes a member raise or clear the alarm that its database is full.
func alarm(c *hosts.Cluster, server *hosts.Host, action pb.AlarmRequest_AlarmAction) error {
	return c.Etcd(server, func(ctx context.Context, client *clientv3.Client, endpoint string) error {
		own, err := client.Status(ctx, endpoint)
		if err != nil {
			return err
		}
		_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: action, MemberID: own.Header.MemberId, Alarm: pb.AlarmType_NOSPACE})
		return err
	})
}

// TestDoctorWithoutCoracle runs doctor on a host on which coracle never ran.
func TestDoctorWithoutCoracle(t *testing.T) {
	slots.Take(t)
	h := hosts.New(t, hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24")), "none", hosts.Options{})
	r := report(t, h, "doctor", "--only", "processes,certificates,etcd,pods,kernel")
	finds(t, r, check.Fail, "processes", "coracle does not run here")
	finds(t, r, check.Skipped, "certificates")
	finds(t, r, check.Skipped, "etcd")
}
