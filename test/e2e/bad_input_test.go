package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/executable"
	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// patience is how long coracle may take to report that it cannot start.
const patience = 30 * time.Second

// A mistake is an error of a person or of a machine. The server must end by itself with a message.
type mistake struct {
	name    string
	prepare string   // shell, on the host
	args    []string // of the server
	as      []string // command that runs the server, in place of plain execution
	want    []string // what the message must contain
}

var mistakes = []mistake{
	{
		name:    "unknown key in the configuration file",
		prepare: "mkdir -p /etc/coracle; printf 'flannel-backand: vxlan\\n' > /etc/coracle/config.yaml",
		want:    []string{"flannel-backand", "config.yaml:1", "flannel-backend"},
	},
	{name: "unknown flag", args: []string{"--cluster-cird=10.1.0.0/16"}, want: []string{"cluster-cird"}},
	{name: "bad CIDR", args: []string{"--cluster-cidr=10.42.0.0/99"}, want: []string{"--cluster-cidr", "10.42.0.0/99"}},
	{
		name: "overlapping CIDRs",
		args: []string{"--cluster-cidr=10.43.0.0/16", "--service-cidr=10.43.128.0/17"},
		want: []string{"cluster-cidr", "service-cidr", "overlap"},
	},
	{
		name: "several mistakes at once",
		args: []string{"--cluster-cidr=nonsense", "--log-level=loud", "--node-name=Not_A_Name"},
		want: []string{"cluster-cidr", "log-level", "node-name"},
	},
	{
		name:    "taken port",
		prepare: "busybox nc -ll -p 6443 -e true & timeout 60 sh -c \"until grep -q :192B /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done\"",
		want:    []string{"6443", "busybox"},
	},
	{
		name:    "read-only data directory",
		prepare: "mount -o remount,ro,bind /var/lib/coracle",
		want:    []string{"/var/lib/coracle", "read-only"},
	},
	{
		name:    "full data directory",
		prepare: "mount -t tmpfs -o size=1M tmpfs /var/lib/coracle",
		want:    []string{"/var/lib/coracle", "space"},
	},
	{
		name: "not root",
		as:   []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"},
		want: []string{"root"},
	},
	{
		name: "no right to make network interfaces",
		as:   []string{"setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"},
		want: []string{"CAP_NET_ADMIN"},
	},
	{
		name: "node address of no interface",
		args: []string{"--node-ip=192.0.2.77"},
		want: []string{"no interface has the node's address 192.0.2.77", "--node-ip"},
	},
	{name: "missing file", args: []string{"--audit-policy-file=/no/such/file"}, want: []string{"audit-policy-file", "/no/such/file"}},
	{name: "unknown pass-through flag", args: []string{"--kube-apiserver-arg=no-such-flag=1"}, want: []string{"no-such-flag"}},
	{name: "unknown service to disable", args: []string{"--disable=dsn"}, want: []string{"dsn", "dns"}},
}

func TestMistakes(t *testing.T) {
	slots.Take(t)
	turns := make(chan struct{}, atOnce)
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			t.Cleanup(func() { <-turns })
			h := newHost(t, "solo")
			if m.prepare != "" {
				h.Run("sh", "-c", "("+m.prepare+") >/dev/null 2>&1 </dev/null")
			}
			checkRefusal(t, serverEnds(t, h, m.as, binary, m.args), m.want)
		})
	}
}

// serverEnds runs a server that is expected to fail, and returns its output.
func serverEnds(t *testing.T, h *hosts.Host, as []string, bin string, args []string) string {
	t.Helper()
	line := append(append([]string{}, as...), append([]string{bin, "server"}, args...)...)
	cmd := h.Command("timeout", append([]string{"-k", "5", fmt.Sprint(patience.Seconds())}, line...)...)
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("after %s: %v\n%s", time.Since(began).Round(10*time.Millisecond), err, tail(string(out), 12))
	exit, ok := err.(*exec.ExitError)
	switch {
	case err == nil:
		t.Errorf("the server ended with exit code 0")
	case ok && exit.ExitCode() == 124:
		t.Errorf("the server did not end within %s", patience)
	case !ok:
		t.Errorf("running the server: %v", err)
	}
	return string(out)
}

func checkRefusal(t *testing.T, out string, want []string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("the message does not say %q", w)
		}
	}
	for _, trace := range []string{"goroutine ", "panic:", ".go:"} {
		if strings.Contains(out, trace) {
			t.Errorf("the message holds a stack trace (%q)", trace)
		}
	}
}

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// TestDamage damages files of a server and starts it again.
func TestDamage(t *testing.T) {
	slots.Take(t)
	h, s := newFreshCluster(t)
	t.Run("second server on the same data directory", func(t *testing.T) {
		out := serverEnds(t, h.For(t), nil, binary, nil)
		checkRefusal(t, out, []string{"/var/lib/coracle", "pid "})
	})
	t.Run("second server on the same run directory", func(t *testing.T) {
		h := h.For(t)
		out := serverEnds(t, h, nil, binary, []string{"--data-dir=/var/tmp/other"})
		checkRefusal(t, out, []string{"/run/coracle", "pid "})
		waitReady(t, h) // the first server continues to run
		h.Run("rm", "-r", "/var/tmp/other")
	})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, d := range []struct {
		name, damage, repair string
		want                 []string
	}{
		{
			name:   "etcd database whose log is missing",
			damage: "cd /var/lib/coracle/server/etcd/member && mv wal ../wal.good && cp snap/db ../db.good && " + damageDatabase,
			repair: "cd /var/lib/coracle/server/etcd/member && rm -rf wal && mv ../wal.good wal && mv ../db.good snap/db",
			want:   []string{damagedEtcd},
		},
		{
			name:   "etcd write-ahead log",
			damage: "cd /var/lib/coracle/server/etcd/member && cp -r wal wal.good && for f in wal/*.wal; do dd if=/dev/urandom of=$f bs=4096 count=1 conv=notrunc; done",
			repair: "cd /var/lib/coracle/server/etcd/member && rm -r wal && mv wal.good wal",
			want:   []string{damagedEtcd},
		},
		{
			name:   "readable private key",
			damage: "chmod 0644 /var/lib/coracle/server/pki/ca.key",
			repair: "chmod 0600 /var/lib/coracle/server/pki/ca.key",
			want:   []string{"ca.key", "chmod"},
		},
		{
			name:   "missing CA key",
			damage: "mv /var/lib/coracle/server/pki/ca.key /root/",
			repair: "mv /root/ca.key /var/lib/coracle/server/pki/",
			want:   []string{"ca.key"},
		},
	} {
		t.Run(d.name, func(t *testing.T) {
			h := h.For(t)
			h.Run("sh", "-c", d.damage)
			defer h.Run("sh", "-c", d.repair)
			checkRefusal(t, serverEnds(t, h, nil, binary, nil), d.want)
		})
	}
	for arg, want := range map[string][]string{
		"--service-cidr=10.99.0.0/16": {"service-cidr", "10.43.0.0/16", "10.99.0.0/16", "coracle reset"},
		"--cluster-domain=other.test": {"cluster-domain", "cluster.local", "other.test", "coracle reset"},
	} {
		t.Run("the cluster was made without "+arg, func(t *testing.T) {
			checkRefusal(t, serverEnds(t, h.For(t), nil, binary, []string{arg}), want)
		})
	}
	t.Run("unpacked payload and a database whose log is complete heal themselves", func(t *testing.T) {
		h.Run("sh", "-c", "rm /var/lib/coracle/bin/runc; cd /var/lib/coracle/server/etcd/member && "+damageDatabase)
		s := h.Start()
		waitReady(t, h)
		h.Run("test", "-x", "/var/lib/coracle/bin/runc")
		if !strings.Contains(s.Log(), "etcd's database is damaged") {
			t.Error("the log does not tell of the damaged database")
		}
	})
}

// damagedEtcd is what the error says when etcd cannot read its files.
const damagedEtcd = "if the data in /var/lib/coracle/server/etcd is damaged, put a backup in its place, or move it away to begin with an empty cluster"

// damageDatabase overwrites the begin of etcd's database in the directory of the member.
const damageDatabase = "dd if=/dev/urandom of=snap/db bs=4096 count=8 conv=notrunc"

// TestDamagedExecutable starts a copy of coracle that has a flipped byte in its payload.
func TestDamagedExecutable(t *testing.T) {
	slots.Take(t)
	h := newFreshHost(t, "solo")
	data, err := os.ReadFile(hosts.Bin(t))
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 0xff
	if err := executable.Write(filepath.Join(h.Path("/root"), "damaged"), data); err != nil {
		t.Fatal(err)
	}
	checkRefusal(t, serverEnds(t, h, nil, "/root/damaged", nil), []string{"damaged", "payload"})
}
