package supportbundle

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/diagnose/redact"
)

// Sources has the settings for the collectors.
type Sources struct {
	Dirs   paths.Dirs
	Config config.Config // of the last start, if known
	// Self is the executable whose commands (status, crictl, ...) are run. Env is added to their environment.
	Self string
	Env  []string
	// Since is the time of the oldest log lines.
	Since time.Time
	// API is the access to the API; nil leaves the cluster out. With AsNode it has only the rights of the node of that name.
	API    *rest.Config
	AsNode string
	// Tables are coracle's nft tables.
	Tables   []string
	Redactor *redact.Redactor
}

// Collectors returns the table of collectors, in the order in which they are most useful.
func (s Sources) Collectors() []Collector {
	out := s.own()
	switch {
	case s.API != nil && s.AsNode != "":
		out = append(out,
			Collector{Name: "cluster/health", About: "health endpoints of the API server", Collect: Healthz(s.API)},
			Collector{Name: "cluster/objects", About: "this node and its pods, without values of variables", Collect: NodeObjects(s.API, s.AsNode), Timeout: 30 * time.Second},
		)
	case s.API != nil:
		out = append(out,
			Collector{Name: "cluster/overview.txt", About: "nodes and pods", Collect: s.run("kubectl", "get", "nodes,pods,leases", "-A", "-o", "wide", "--request-timeout=10s")},
			Collector{Name: "cluster/health", About: "health endpoints of the API server", Collect: Healthz(s.API)},
			Collector{Name: "cluster/events.txt", About: "events, in the order of time", Collect: Events(s.API)},
			Collector{Name: "cluster/objects", About: "objects, without Secrets and without values of variables", Collect: Objects(s.API), Timeout: 30 * time.Second},
		)
	}
	return append(out, host(s)...)
}

// own returns the collectors of coracle itself.
func (s Sources) own() []Collector {
	d := s.Dirs
	return []Collector{
		{Name: "status.txt", About: "coracle status", Collect: s.run("status")},
		{Name: "status.json", About: "the same, for programs", Collect: s.run("status", "-o", "json")},
		{Name: "doctor.json", About: "coracle doctor", Collect: s.run("doctor", "-o", "json"), Timeout: 30 * time.Second},
		{Name: "version.json", About: "versions of the unpacked components", Collect: One(filepath.Join(filepath.Dir(s.Self), "versions.json"))},
		{Name: "log", About: "log files", Collect: Flat(s.old, d.LogFile()+"*"), Timeout: 20 * time.Second},
		{Name: "journal.txt", About: "systemd's log of the service", Collect: Command(nil, "journalctl", "--no-pager", "--output=short-iso-precise",
			"--lines=20000", "--since=@"+strconv.FormatInt(s.Since.Unix(), 10), "--unit=coracle*")},
		{Name: "trace.txt", About: "coracle trace: the last start", Collect: s.run("trace")},
		{Name: "state", About: "state files of coracle's processes", Collect: Flat(nil, d.State("*"))},
		{Name: "config", About: "the settings in force, and their files", Collect: Paths(isSecretFile, d.Resolved(),
			filepath.Join(d.Config, "*.yaml"), filepath.Join(d.Config, "*.yaml.d", "*"), filepath.Join(d.Config, "certs.d", "*", "hosts.toml"),
			d.ServerConfig("*"), d.NodeConfig("*"), "/etc/cni/net.d/*")},
		{Name: "install", About: "records of installation and upgrades, and the service", Collect: Paths(isSecretFile, filepath.Join(d.Config, "install", "*.json"),
			filepath.Join(d.Data, "upgrade", "*.json"), "/etc/systemd/system/coracle*.service", "/etc/systemd/system/coracle*.service.d/*",
			"/etc/init.d/coracle*")},
		{Name: "remembered", About: "the ledger, and what is stored about the cluster", Collect: Paths(isSecretFile, d.Ledger(), d.ServerCluster(), d.OwnNodes(),
			d.ResetRequest(), d.Cluster(), d.Servers(), d.ImageIndex(), d.Subnet())},
		{Name: "files.txt", About: "coracle's files: names, sizes, modes", Collect: Tree(d.Data, d.Run, d.Config)},
		{Name: "etcd.json", About: "coracle etcd status", Collect: s.run("etcd", "status", "-o", "json")},
		{Name: "runtime/pods.txt", About: "pods in containerd", Collect: s.run("crictl", "pods")},
		{Name: "runtime/containers.txt", About: "containers", Collect: s.run("crictl", "ps", "-a")},
		{Name: "runtime/images.txt", About: "images", Collect: s.run("crictl", "images", "--digests")},
		{Name: "runtime/info.json", About: "containerd's configuration and conditions", Collect: s.run("crictl", "info")},
	}
}

// host returns the collectors of the machine.
func host(s Sources) []Collector {
	d := s.Dirs
	ip := func(args ...string) func(context.Context, *Files) error {
		return Command(s.Env, append([]string{"ip"}, args...)...)
	}
	return []Collector{
		{Name: "host/kernel", About: "kernel, distribution, memory, mounts, cgroups", Collect: Paths(nil, kernelFiles...)},
		{Name: "host/sysctls.txt", About: "kernel settings", Collect: Sysctls},
		{Name: "host/clock.txt", About: "time, and whether the clock is synchronised", Collect: Clock},
		{Name: "host/disks.txt", About: "use of file systems", Collect: Disks("/", d.Data, d.Run, d.Kubelet, "/tmp", "/var/log")},
		{Name: "host/processes.txt", About: "processes, without their environments", Collect: Processes(s.Redactor)},
		{Name: "host/blocked.txt", About: "threads that wait for a disk", Collect: Blocked},
		{Name: "host/dmesg.txt", About: "the end of the kernel's log", Collect: Dmesg},
		{Name: "host/addresses.txt", About: "interfaces and addresses", Collect: ip("addr")},
		{Name: "host/links.txt", About: "interfaces in detail", Collect: ip("-s", "link")},
		{Name: "host/routes.txt", About: "routes of all tables", Collect: ip("route", "show", "table", "all")},
		{Name: "host/routes6.txt", About: "the same for IPv6", Collect: ip("-6", "route", "show", "table", "all")},
		{Name: "host/rules.txt", About: "routing rules", Collect: ip("rule")},
		{Name: "host/neighbours.txt", About: "neighbours", Collect: ip("neigh")},
		{Name: "host/sockets", About: "open ports and connections", Collect: Flat(nil, "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6")},
		{Name: "host/firewall", About: "coracle's rules, and chains of other tables", Collect: Firewall(filepath.Join(filepath.Dir(s.Self), "nft"), s.Tables)},
	}
}

// run collects the output of one of coracle's own commands. It is a process of its own, so that it can be killed when it
// hangs.
func (s Sources) run(args ...string) func(context.Context, *Files) error {
	return Command(s.Env, append([]string{s.Self}, args...)...)
}

// old reports whether a log file has no lines since the configured time.
func (s Sources) old(path string) bool { return !modifiedSince(path, s.Since) }

// isSecretFile reports whether a file holds only secrets.
func isSecretFile(path string) bool {
	name := filepath.Base(path)
	return strings.HasSuffix(name, ".key") || strings.HasSuffix(name, ".env") || strings.Contains(name, "kubeconfig") ||
		strings.Contains(name, "token") || strings.Contains(name, "encryption")
}
