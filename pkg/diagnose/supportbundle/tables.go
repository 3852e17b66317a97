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

// Sources are what a bundle is made of.
type Sources struct {
	Dirs   paths.Dirs
	Config config.Config // that of the last start, as far as it is known
	// Self is the executable whose commands (status, crictl, ...) are run, Env what they get besides our environment.
	Self string
	Env  []string
	// Since is how far back logs go.
	Since time.Time
	// API is how the cluster is asked; nil does not ask it. With AsNode it has the rights of the node of that name only.
	API    *rest.Config
	AsNode string
	// Tables are coracle's nft tables.
	Tables   []string
	Redactor *redact.Redactor
}

// Collectors is the table of all that is collected, in the order in which one looks at it.
func (s Sources) Collectors() []Collector {
	out := s.own()
	switch {
	case s.API != nil && s.AsNode != "":
		out = append(out,
			Collector{Name: "cluster/health", About: "what the API says about itself", Collect: Healthz(s.API)},
			Collector{Name: "cluster/objects", About: "this node and its pods, without values of variables", Collect: NodeObjects(s.API, s.AsNode), Timeout: 30 * time.Second},
		)
	case s.API != nil:
		out = append(out,
			Collector{Name: "cluster/overview.txt", About: "nodes and pods", Collect: s.run("kubectl", "get", "nodes,pods,leases", "-A", "-o", "wide", "--request-timeout=10s")},
			Collector{Name: "cluster/health", About: "what the API says about itself", Collect: Healthz(s.API)},
			Collector{Name: "cluster/events.txt", About: "events, in the order of time", Collect: Events(s.API)},
			Collector{Name: "cluster/objects", About: "objects, without Secrets and without values of variables", Collect: Objects(s.API), Timeout: 30 * time.Second},
		)
	}
	return append(out, host(s)...)
}

// own is what coracle itself has and says.
func (s Sources) own() []Collector {
	d := s.Dirs
	return []Collector{
		{Name: "status.txt", About: "coracle status", Collect: s.run("status")},
		{Name: "status.json", About: "the same, for programs", Collect: s.run("status", "-o", "json")},
		{Name: "doctor.json", About: "coracle doctor: what is found to be wrong", Collect: s.run("doctor", "-o", "json"), Timeout: 30 * time.Second},
		{Name: "version.json", About: "the versions of the parts that are unpacked", Collect: One(filepath.Join(filepath.Dir(s.Self), "versions.json"))},
		{Name: "log", About: "the ring of logs on disk", Collect: Flat(s.old, d.LogFile()+"*"), Timeout: 20 * time.Second},
		{Name: "journal.txt", About: "what systemd keeps of the service", Collect: Command(nil, "journalctl", "--no-pager", "--output=short-iso-precise",
			"--lines=20000", "--since=@"+strconv.FormatInt(s.Since.Unix(), 10), "--unit=coracle*")},
		{Name: "trace.txt", About: "where the time of the last start went", Collect: s.run("trace")},
		{Name: "state", About: "what the processes write about themselves", Collect: Flat(nil, d.State("*"))},
		{Name: "config", About: "the settings in force, and the files they are from", Collect: Paths(isSecretFile, d.Resolved(),
			filepath.Join(d.Config, "*.yaml"), filepath.Join(d.Config, "*.yaml.d", "*"), filepath.Join(d.Config, "certs.d", "*", "hosts.toml"),
			d.ServerConfig("*"), d.NodeConfig("*"), "/etc/cni/net.d/*")},
		{Name: "install", About: "what installed and upgraded coracle here", Collect: Paths(isSecretFile, filepath.Join(d.Config, "install", "*.json"),
			filepath.Join(d.Data, "upgrade", "*.json"), "/etc/systemd/system/coracle*.service", "/etc/systemd/system/coracle*.service.d/*",
			"/etc/init.d/coracle*")},
		{Name: "remembered", About: "the ledger, and what this machine knows of the cluster", Collect: Paths(isSecretFile, d.Ledger(), d.ServerCluster(), d.OwnNodes(),
			d.ResetRequest(), d.Cluster(), d.Servers(), d.ImageIndex(), d.Subnet())},
		{Name: "files.txt", About: "coracle's files: names, sizes, modes", Collect: Tree(d.Data, d.Run, d.Config)},
		{Name: "etcd.json", About: "coracle etcd status", Collect: s.run("etcd", "status", "-o", "json")},
		{Name: "runtime/pods.txt", About: "pods as containerd knows them", Collect: s.run("crictl", "pods")},
		{Name: "runtime/containers.txt", About: "containers", Collect: s.run("crictl", "ps", "-a")},
		{Name: "runtime/images.txt", About: "images", Collect: s.run("crictl", "images", "--digests")},
		{Name: "runtime/info.json", About: "containerd's configuration and conditions", Collect: s.run("crictl", "info")},
	}
}

// host is what the machine says.
func host(s Sources) []Collector {
	d := s.Dirs
	ip := func(args ...string) func(context.Context, *Files) error {
		return Command(s.Env, append([]string{"ip"}, args...)...)
	}
	return []Collector{
		{Name: "host/kernel", About: "kernel, distribution, memory, mounts, cgroups", Collect: Paths(nil, kernelFiles...)},
		{Name: "host/sysctls.txt", About: "kernel settings", Collect: Sysctls},
		{Name: "host/clock.txt", About: "time, and whether it is kept right", Collect: Clock},
		{Name: "host/disks.txt", About: "how full the file systems are", Collect: Disks("/", d.Data, d.Run, d.Kubelet, "/tmp", "/var/log")},
		{Name: "host/processes.txt", About: "processes, without their environments", Collect: Processes(s.Redactor)},
		{Name: "host/blocked.txt", About: "threads that wait for a disk", Collect: Blocked},
		{Name: "host/dmesg.txt", About: "the end of the kernel's log", Collect: Dmesg},
		{Name: "host/addresses.txt", About: "interfaces and addresses", Collect: ip("addr")},
		{Name: "host/links.txt", About: "interfaces in detail", Collect: ip("-s", "link")},
		{Name: "host/routes.txt", About: "routes of all tables", Collect: ip("route", "show", "table", "all")},
		{Name: "host/routes6.txt", About: "the same for IPv6", Collect: ip("-6", "route", "show", "table", "all")},
		{Name: "host/rules.txt", About: "routing rules", Collect: ip("rule")},
		{Name: "host/neighbours.txt", About: "neighbours", Collect: ip("neigh")},
		{Name: "host/sockets", About: "ports that are listened at", Collect: Flat(nil, "/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6")},
		{Name: "host/firewall", About: "coracle's rules; of others' the chains only", Collect: Firewall(filepath.Join(filepath.Dir(s.Self), "nft"), s.Tables)},
	}
}

// run collects the output of one of coracle's own commands. It is a process of its own, so that it can be killed when
// what it asks hangs.
func (s Sources) run(args ...string) func(context.Context, *Files) error {
	return Command(s.Env, append([]string{s.Self}, args...)...)
}

// old reports a file of the ring that has nothing recent in it.
func (s Sources) old(path string) bool { return !modifiedSince(path, s.Since) }

// isSecretFile reports files that hold nothing but a secret.
func isSecretFile(path string) bool {
	name := filepath.Base(path)
	return strings.HasSuffix(name, ".key") || strings.HasSuffix(name, ".env") || strings.Contains(name, "kubeconfig") ||
		strings.Contains(name, "token") || strings.Contains(name, "encryption")
}
