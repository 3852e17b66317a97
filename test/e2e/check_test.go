package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// thisMachine are checks that may report something on a test machine: it has cgroup v1, no time server, few open files,
// only its wire's gateway as name server, and a shared disk.
var thisMachine = []string{"limits", "clock", "cgroups", "disk-latency", "disk-space", "overlayfs", "modules", "bridge-netfilter", "memory", "etcd"}

// report runs check or doctor on a host and returns its report.
func report(t *testing.T, h *hosts.Host, args ...string) check.Report {
	t.Helper()
	out, err := h.TryCoracle(append(args, "-o", "json")...)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 3) {
		t.Fatalf("%s: coracle %s: %v", h.Name, strings.Join(args, " "), err)
	}
	var r check.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%s: coracle %s: %v in %q", h.Name, strings.Join(args, " "), err, out)
	}
	if (r.Result == check.Fail) != (err != nil) {
		t.Errorf("%s: coracle %s: result %s, and %v", h.Name, strings.Join(args, " "), r.Result, err)
	}
	return r
}

// finds fails the test unless a report has a row with the name and result whose finding and fix contain all the texts.
// It returns the row.
func finds(t *testing.T, r check.Report, result check.Result, name string, texts ...string) check.Row {
	t.Helper()
	var seen []string
	for _, row := range r.Rows {
		if row.Name != name {
			continue
		}
		text := row.Finding + "; fix: " + row.Fix
		seen = append(seen, string(row.Result)+" "+text)
		if row.Result == result && !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(text, s) }) {
			return row
		}
	}
	t.Errorf("%s: no %s with %q, but\n  %s", name, result, texts, strings.Join(seen, "\n  "))
	return check.Row{}
}

// well fails the test if a check fails, or warns about something that is not typical of test machines.
func well(t *testing.T, r check.Report, but ...string) {
	t.Helper()
	if err := unwell(r, but...); err != nil {
		t.Error(err)
	}
}

// unwell is an error that names each row with a problem.
func unwell(r check.Report, but ...string) error {
	var all []error
	for _, row := range r.Rows {
		allowed := row.Result == check.Warn && slices.Contains(thisMachine, row.Name) || slices.Contains(but, row.Name)
		if (row.Result == check.Warn || row.Result == check.Fail) && !allowed {
			all = append(all, fmt.Errorf("%s %s: %s; fix: %s", row.Result, row.Name, row.Finding, row.Fix))
		}
	}
	return errors.Join(all...)
}

// whole prints everything on a host that check could change.
const whole = `ip -o link | cut -d: -f2-; ip -o addr | sed "s/ tentative//"; ip route; ip rule; nft list ruleset; cut -d' ' -f3- /proc/self/mountinfo | sort
find /etc /run /opt /var/lib/coracle /var/lib/kubelet /var/lib/cni /var/log -printf '%p %s %m\n' | sort; find /sys/fs/cgroup/*/ -name '*coracle*' | sort
for f in net/ipv4/ip_forward fs/inotify/max_user_instances net/bridge/bridge-nf-call-iptables; do cat /proc/sys/$f; done
set -- /proc/[0-9]*; echo $# processes`

func TestCheckChangesNothing(t *testing.T) {
	slots.Take(t)
	h := newFreshHost(t, "fresh")
	before, began := h.Run("sh", "-c", whole), time.Now()
	r := report(t, h, "check")
	t.Logf("%d findings in %.1f s", len(r.Rows), time.Since(began).Seconds())
	well(t, r)
	for _, row := range r.Rows {
		if row.Finding == "" || (row.Fix == "") != (row.Result == check.OK || row.Result == check.Skipped) {
			t.Errorf("%s %s: %q, fix %q", row.Result, row.Name, row.Finding, row.Fix)
		}
	}
	after := h.Run("sh", "-c", whole)
	for line := range strings.Lines(before) {
		if !strings.Contains(after, line) {
			t.Errorf("this is gone: %s", line)
		}
	}
	for line := range strings.Lines(after) {
		if !strings.Contains(before, line) {
			t.Errorf("this has come: %s", line)
		}
	}
	if text := h.Coracle("check", "--only", "kernel,links"); !strings.Contains(text, "2 ok, 0 to look at") {
		t.Error(text)
	}
	for _, wrong := range [][]string{{"check", "--only", "nonsense"}, {"check", "-o", "xml"}, {"check", "--cluster-cidr", "x"}} {
		_, err := h.TryCoracle(wrong...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("coracle %s: %v", strings.Join(wrong, " "), err)
		}
	}
}

// TestCheckFindsTrouble breaks several things at once: each has its own line.
func TestCheckFindsTrouble(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "broken")
	h.LimitDisk(700)
	h.FillDisk()
	h.Run("sh", "-c", `ip link set eth0 mtu 1000; ip route add 10.42.7.0/24 dev eth0
mkdir -p /etc/cni/net.d; echo '{}' > /etc/cni/net.d/05-other.conflist
echo nameserver 172.30.0.77 > /etc/resolv.conf; hostname localhost; cp /bin/sleep /tmp/kubelet
nft -f - <<END
table inet mine { chain forward { type filter hook forward priority 0; ct state established accept; counter reject; }
chain input { type filter hook input priority 0; policy drop; iif lo accept; tcp dport { 22, 6443 } accept; tcp dport 10250 accept; }; }
END`)
	for _, command := range [][]string{{"/tmp/kubelet", "60"}, {"busybox", "nc", "-l", "-p", "6443"}} {
		cmd := h.Command(command[0], command[1:]...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	hosts.Eventually(t, time.Minute, func() error { return contains("listeners", h.Run("cat", "/proc/net/tcp", "/proc/net/tcp6"), ":192B") })
	r := report(t, h, "check", "server")
	finds(t, r, check.Fail, "ports", "port 6443, which the Kubernetes API needs, is taken by process", "busybox nc -l -p 6443", "--https-listen-port")
	finds(t, r, check.Fail, "disk-space", "MiB of space left", "make room")
	finds(t, r, check.Warn, "mtu", "packets of eth0 have up to 1000 bytes, those of pods 950", "mtu 1330")
	finds(t, r, check.Fail, "routes", "10.42.7.0/24 by eth0 leads into --cluster-cidr 10.42.0.0/16")
	finds(t, r, check.Fail, "other-kubernetes", "05-other.conflist sorts before coracle's")
	finds(t, r, check.Fail, "other-kubernetes", "kubelet runs (process")
	finds(t, r, check.Warn, "name-servers", "172.30.0.77 does not answer")
	finds(t, r, check.Warn, "hostname", `"localhost"`)
	forward := finds(t, r, check.Fail, "firewall", "inet mine forward", "packets between pods")
	input := finds(t, r, check.Fail, "firewall", "inet mine input", "DNS queries")
	if missing := finds(t, r, check.Warn, "firewall", "8472/udp (packets of pods)"); strings.Contains(missing.Finding, "6443") || strings.Contains(missing.Finding, "10250") {
		t.Errorf("ports that are let in are missed: %s", missing.Finding)
	}

	// The suggested fixes help.
	h.Run("sh", "-c", forward.Fix+"; "+input.Fix+"; nft insert rule inet mine input udp dport 8000-9000 accept; ip route del 10.42.7.0/24")
	h.FreeDisk()
	r = report(t, h, "check", "server", "--only", "firewall,routes,disk-space")
	well(t, r)

	r = report(t, h, "check", "agent", "--server", "https://172.30.0.99:6443", "--token", "not-shown")
	finds(t, r, check.Fail, "server", "https://172.30.0.99:6443 cannot be reached", "nc -vz 172.30.0.99 6443")
}

// TestCheckOfIptables sets up a firewall like Docker and people do, and applies the suggested fixes.
func TestCheckOfIptables(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "walled")
	if _, err := h.Try("which", "iptables"); err != nil {
		t.Skip("there is no iptables on this machine")
	}
	h.Run("sh", "-c", `set -e
iptables -P FORWARD DROP; iptables -A FORWARD -i docker0 -j ACCEPT; iptables -N DOCKER; iptables -A FORWARD -j DOCKER
iptables -P INPUT DROP; iptables -A INPUT -i lo -j ACCEPT; iptables -A INPUT -m state --state ESTABLISHED -j ACCEPT
iptables -A INPUT -p tcp --dport 10000:11000 -j ACCEPT; iptables -A INPUT -p tcp --dport 6443 -j ACCEPT`)
	r := report(t, h, "check", "--only", "firewall")
	finds(t, r, check.OK, "firewall", "ip filter FORWARD", "coracle adds rules there that accept 10.42.0.0/16")
	input := finds(t, r, check.Fail, "firewall", "ip filter INPUT", "iptables -I INPUT -s 10.42.0.0/16 -j ACCEPT")
	ports := finds(t, r, check.Warn, "firewall", "drops connections to 8472/udp (packets of pods): ")
	h.Run("sh", "-ec", input.Fix+"; "+ports.Fix)
	well(t, report(t, h, "check", "--only", "firewall"))
}

// TestCheckOfSecretsAndDirectories checks findings about files, directories and a memory limit.
func TestCheckOfSecretsAndDirectories(t *testing.T) {
	slots.Take(t)
	h := newHost(t, "open")
	key := h.Data("server/pki/ca.key")
	if err := os.MkdirAll(filepath.Dir(key), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h.Run("sh", "-c", `mount -t tmpfs -o noexec none /mnt; touch /tmp/file
for f in /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; do [ ! -e $f ] || echo 209715200 > $f; done`)
	r := report(t, h, "check", "--only", "secret-files,memory")
	finds(t, r, check.Fail, "memory", "the cgroup that this runs in allows 200 MiB", "too little for coracle server")
	finds(t, r, check.Fail, "secret-files", "ca.key holds a secret", "chmod 600 /var/lib/coracle/server/pki/ca.key")
	r = report(t, h, "check", "--data-dir", "/mnt/x", "--run-dir", "/tmp/file", "--only", "data-dir,file-system,run-dir")
	finds(t, r, check.Fail, "data-dir", "mounted noexec", "--data-dir")
	finds(t, r, check.Warn, "file-system", "tmpfs", "gone after a reboot")
	finds(t, r, check.Fail, "run-dir", "is a file", "--run-dir")
}
