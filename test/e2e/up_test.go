package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/localcluster"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/registries"
	"github.com/coracle-dev/coracle/test/slots"
)

// A laptop is a host on which local clusters are made.
type laptop struct {
	*hosts.Host
	t *testing.T
}

func newLaptop(t *testing.T) (laptop, *hosts.Wire) {
	t.Helper()
	hosts.Bin(t)
	wire := hosts.NewWire(t, netip.MustParsePrefix("172.30.0.0/24"))
	h := hosts.New(t, wire, "laptop", hosts.Options{OwnPayload: true})
	h.CopyImages()
	h.Coracle("kubectl", "version", "--client") // unpacks
	h.Run("rm", "-rf", "/root/.kube")
	// This machine may have clusters of its own. The host's clusters are on an overlayfs, as in a container.
	h.Run("sh", "-c", "mkdir -p /srv/clusters "+localcluster.DefaultDir+" && mount --bind /srv/clusters "+localcluster.DefaultDir)
	return laptop{h, t}, wire
}

// up makes a cluster and returns the command's output.
func (l laptop) up(args ...string) string {
	l.t.Helper()
	out, err := l.tryUp(args...)
	l.t.Cleanup(func() {
		if l.t.Failed() {
			log, _ := l.Try("sh", "-c", "cd "+localcluster.DefaultDir+" && tail -n 40 */log/*")
			l.t.Logf("logs: %s", log)
		}
	})
	if err != nil {
		l.t.Fatalf("coracle up %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (l laptop) tryUp(args ...string) (string, error) {
	out, err := l.Command(binary, append([]string{"up"}, args...)...).CombinedOutput()
	return string(out), err
}

// clusters is the output of coracle up list.
func (l laptop) clusters() map[string]localcluster.Record {
	l.t.Helper()
	var list struct{ Clusters []localcluster.Record }
	if err := json.Unmarshal([]byte(l.Coracle("up", "list", "-o", "json")), &list); err != nil {
		l.t.Fatal(err)
	}
	all := map[string]localcluster.Record{}
	for _, r := range list.Clusters {
		all[r.Name] = r
	}
	return all
}

// state prints every part of the machine in which a cluster could leave traces.
func (l laptop) state() string {
	l.t.Helper()
	return l.Run("sh", "-c", `
		echo links; ip -o link | sed 's/^[0-9]*: //; s/@.*//'
		echo addresses; ip -o addr | awk '{print $2, $4}'
		echo routes; ip route; ip rule
		echo nft; nft list ruleset
		echo mounts; sed s/,uuid=on// /proc/mounts
		echo cgroups; find /sys/fs/cgroup -type d | sort
		echo processes; ps -eo args | grep coracle | grep -v grep
		echo sysctls; sysctl net.ipv4.ip_forward net.ipv4.conf.eth0.forwarding net.ipv4.conf.default.forwarding vm.overcommit_memory kernel.panic fs.inotify.max_user_instances
		echo files; find /root /tmp /run /etc /srv/clusters -xdev -path /root/.cache -prune -o -path /root/.kube/cache -prune -o -print | sort
		echo kubeconfig; cat /root/.kube/config || true`) + "written\n" + l.Written()
}

// compare fails the test if the state of the machine has changed.
func (l laptop) compare(before string) {
	l.t.Helper()
	after := l.state()
	if after == before {
		return
	}
	was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range is {
		if !slices.Contains(was, line) {
			l.t.Errorf("left behind: %s", line)
		}
	}
	for _, line := range was {
		if !slices.Contains(is, line) {
			l.t.Errorf("gone: %s", line)
		}
	}
}

// userConfig is an existing kubeconfig of the user.
const userConfig = `apiVersion: v1
kind: Config
clusters:
  - name: work
    cluster:
      server: https://work.example:6443 # ours
users: []
contexts:
  - name: work
    context:
      cluster: work
      user: work
current-context: work
`

// TestUp makes a local cluster of three nodes and a second one, uses both, and removes them.
func TestUp(t *testing.T) {
	slots.Take(t)
	l, wire := newLaptop(t)
	outside := hosts.New(t, wire, "outside", hosts.Options{})
	l.Run("sh", "-c", "mkdir -m 700 /root/.kube; cat > /root/.kube/config <<'EOF'\n"+userConfig+"EOF\nchmod 600 /root/.kube/config")
	l.Run("nft", "add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }") // like Docker
	mirror := registries.Start(t, outside, registries.Options{})
	mirror.Push("up/app:1", registries.ReadImage(t, hosts.Images(t)[0]))
	writeHost(t, l.Host, registriesFile, fmt.Sprintf("mirrors:\n  up.test:\n    endpoint: [%q]\n", mirror.URL))
	before := l.state()

	began := time.Now()
	args := []string{"--nodes", "3"}
	for _, image := range hosts.Images(t) {
		args = append(args, "--image", "/var/lib/coracle/images/"+filepath.Base(image))
	}
	t.Logf("%s", l.up(args...))
	t.Logf("three nodes Ready after %.1f s", time.Since(began).Seconds())
	nodes := l.clusters()["local"].Nodes

	l.Coracle("kubectl", "create", "namespace", "seen") // the cluster is the current context of the user's kubeconfig
	l.applyUp("local", manifest(t, "up.yaml"))
	l.Coracle("kubectl", "rollout", "status", "daemonset/web", "--timeout=3m")
	for _, n := range nodes {
		expect(t, n.Name+"\n", func() (string, error) {
			return l.Try(binary, "kubectl", "get", "pods", "-l", "app=web", "-o", `jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}`)
		})
		expect(t, "web-", func() (string, error) { return l.Get(fmt.Sprintf("http://%s:30080/hostname", n.IP)) })
	}
	t.Run("pods reach what the machine reaches", func(t *testing.T) {
		web := outside.Command("busybox", "httpd", "-f", "-p", "8000", "-h", "/etc")
		if err := web.Start(); err != nil {
			t.Fatal(err)
		}
		expect(t, "passwd", func() (string, error) {
			return l.Try(binary, "kubectl", "exec", "ds/web", "--", "wget", "-qO-", fmt.Sprintf("http://%s:8000/nsswitch.conf", outside.IP))
		})
		expect(t, hosts.ExternalIP, func() (string, error) {
			return l.Try(binary, "kubectl", "exec", "ds/web", "--", "nslookup", hosts.ExternalName)
		})
	})
	t.Run("mirrors of registries", func(t *testing.T) {
		l.For(t).Coracle("up", "exec", "local", "agent-1", "--", "coracle", "crictl", "pull", "up.test/up/app:1")
	})
	t.Run("a second cluster", func(t *testing.T) { l.second(t) })
	t.Run("a node stops", func(t *testing.T) {
		agent := nodes[2]
		l.Coracle("up", "node", "stop", "local", "agent-2")
		if _, err := l.Get(fmt.Sprintf("http://%s:30080/hostname", agent.IP)); err == nil {
			t.Error("a node that was stopped answers")
		}
		l.Coracle("up", "node", "start", "local", "agent-2")
		expect(t, "web-", func() (string, error) { return l.Get(fmt.Sprintf("http://%s:30080/hostname", agent.IP)) })
	})
	if err := contains("logs", l.Coracle("up", "logs", "local", "agent-1"), "coracle is ready"); err != nil {
		t.Error(err)
	}
	if got := l.Coracle("up", "exec", "local", "agent-1", "hostname"); got != "local-agent-1\n" {
		t.Errorf("hostname on agent-1: %q", got)
	}
	if _, err := l.Try(binary, "up", "exec", "local", "agent-1", "--", "sh", "-c", "exit 7"); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("a command that fails on a node: %v", err)
	}
	l.Coracle("down")
	l.compare(before)
}

func (l laptop) applyUp(cluster, manifest string) {
	l.t.Helper()
	cmd := l.Command(binary, "kubectl", "--context", "coracle-"+cluster, "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("applying: %v: %s", err, out)
	}
}

// second makes a second cluster, kills it, and removes the rest.
func (l laptop) second(t *testing.T) {
	l.up("other")
	other := l.clusters()["other"]
	for _, name := range []string{"local", "other"} {
		if err := contains(name, l.Coracle("kubectl", "--context", "coracle-"+name, "get", "nodes"), name+"-server-1"); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Try(binary, "kubectl", "--context", "coracle-other", "get", "namespace", "seen"); err == nil {
		t.Error("two clusters are the same one")
	}
	if out, err := l.tryUp("other"); err == nil || !strings.Contains(out, "there is a cluster other already") {
		t.Errorf("a name that is taken: %v: %s", err, out)
	}
	l.Run("kill", "-9", fmt.Sprint(other.Holder.PID))
	hosts.Eventually(t, time.Minute, func() error {
		if out, _ := l.Try("sh", "-c", "ps -eo args | grep other | grep -v grep; ip -o link | grep cor-other; nft list tables | grep other"); out != "" {
			return fmt.Errorf("left without its holder: %s", out)
		}
		return nil
	})
	if state := l.clusters()["other"].State; state != localcluster.Dead {
		t.Errorf("a cluster that was killed is %s", state)
	}
	l.Coracle("down", "other")
	if got := strings.TrimSpace(l.Coracle("kubectl", "config", "current-context")); got != "coracle-local" {
		t.Errorf("the current context is %s", got)
	}
}

// TestUpEndsEarly checks that nothing is left when a cluster does not start.
func TestUpEndsEarly(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	before := l.state()
	t.Run("time is over", func(t *testing.T) {
		out, err := l.tryUp("--wait", "1s")
		if err == nil || !strings.Contains(out, "not Ready within 1s: local-server-1: ") || !strings.Contains(out, "/tmp/coracle-local-logs-") {
			t.Errorf("%v: %s", err, out)
		}
		l.Run("sh", "-c", "rm -r /tmp/coracle-local-logs-*")
		l.compare(before)
	})
	for name, signal := range map[string]syscall.Signal{"Ctrl-C": syscall.SIGINT, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			up := l.Command(binary, "up")
			if err := up.Start(); err != nil {
				t.Fatal(err)
			}
			hosts.Eventually(t, time.Minute, func() error { return contains("nodes", l.Run("ps", "-eo", "args"), "coracle server") })
			l.Run("pkill", fmt.Sprintf("-%d", signal), "-fx", binary+" up")
			if err := up.Wait(); err == nil {
				t.Error("it ended well")
			}
			hosts.Eventually(t, time.Minute, func() error {
				l.Run("sh", "-c", "rm -rf /tmp/coracle-local-logs-*")
				if err := l.gone(); err != nil {
					log, _ := l.Try("cat", localcluster.DefaultDir+"/local/log/holder.log")
					return fmt.Errorf("%w: %s", err, log)
				}
				return nil
			})
			l.compare(before)
		})
	}
	for want, args := range map[string][]string{
		"there is no local cluster none":     {"down", "none"},
		"must consist of lower-case letters": {"up", "--name", "No"},
		"cannot hold 3 servers":              {"up", "--servers", "3", "--nodes", "2"},
		"no network is free":                 {"up"},
	} {
		t.Run(want, func(t *testing.T) {
			l.Run("ip", "route", "add", "10.222.0.0/16", "via", "172.30.0.1")
			defer l.Run("ip", "route", "del", "10.222.0.0/16")
			if out, err := l.Command(binary, args...).CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	l.compare(before)
}

// TestUpReboot reboots the machine of a cluster.
func TestUpReboot(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	before := l.state()
	l.Run("sh", "-c", "mkdir /srv/settings && echo 'node-label: [tier=gold]' > /srv/settings/coracle.yaml")
	l.up("--config", "/srv/settings/coracle.yaml")
	if err := contains("labels", l.Coracle("kubectl", "get", "nodes", "--show-labels"), "tier=gold"); err != nil {
		t.Error(err)
	}
	l.Kill()
	l.Boot()
	l.Run("mount", "--bind", "/srv/clusters", localcluster.DefaultDir)
	if state := l.clusters()["local"].State; state != localcluster.Dead {
		t.Errorf("after a reboot the cluster is %s", state)
	}
	if out, err := l.tryUp(); err == nil || !strings.Contains(out, "(dead); remove it with coracle down local") {
		t.Errorf("%v: %s", err, out)
	}
	l.Coracle("down")
	l.Run("rm", "-r", "/srv/settings")
	l.compare(before)
}

// TestUpBesideServer makes two clusters at once on a machine that is a node of another cluster, for a user with sudo.
func TestUpBesideServer(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	l.Start()
	waitReady(t, l.Host)
	l.Run("sh", "-c", "echo dev:x:1234:1234::/home/dev:/bin/sh >> /etc/passwd; mkdir -p /home/dev; chown 1234:1234 /home/dev")
	names := []string{"one", "two"}
	ended := make(chan error, len(names))
	for _, name := range names {
		go func() {
			out, err := l.Command("env", "SUDO_USER=dev", binary, "up", name).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("coracle up %s: %w: %s", name, err, out)
			}
			ended <- err
		}()
	}
	for range names {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	const config = "/home/dev/.kube/config"
	if got := l.Run("stat", "-c", "%u %a", config, "/home/dev/.kube"); got != "1234 600\n1234 700\n" {
		t.Errorf("the user's kubeconfig and its directory: %s", got)
	}
	for _, name := range names {
		out := l.Coracle("kubectl", "--kubeconfig", config, "--context", "coracle-"+name, "get", "nodes")
		if err := contains(name, out, name+"-server-1"); err != nil {
			t.Error(err)
		}
	}
	l.Coracle("down", "--all")
	if out, err := l.Try("ls", "-A", "/home/dev"); out != "" || err != nil {
		t.Errorf("left in the user's home: %s (%v)", out, err)
	}
	if err := contains("the machine's own cluster", l.Kubectl("get", "nodes"), "laptop"); err != nil {
		t.Error(err)
	}
}

// TestUpServers loses one of three servers.
func TestUpServers(t *testing.T) {
	slots.Take(t)
	l, _ := newLaptop(t)
	l.Run("mkdir", "/root/.kube") // for kubectl's cache
	before := l.state()
	t.Logf("%s", l.up("ha", "--servers", "3"))
	l.Coracle("kubectl", "create", "configmap", "before")
	l.Coracle("up", "node", "stop", "ha", "server-1")
	hosts.Eventually(t, 2*time.Minute, func() error {
		_, err := l.Try(binary, "kubectl", "create", "configmap", "after", "--request-timeout=5s")
		return err
	})
	l.Coracle("kubectl", "get", "configmap", "before")
	l.Coracle("up", "node", "start", "ha", "server-1")
	l.Coracle("down", "--all")
	l.compare(before)
}
