package check

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Machine is what the probes look at.
type Machine struct {
	// Config is what would be, or is, run here.
	Config config.Config
	// Running says that coracle runs here: its ports are taken, and by itself.
	Running bool
	// Environ is the environment that coracle would get.
	Environ []string
	// Root is where /proc, /sys and /etc are. Tests bring their own; "" is this machine.
	Root string
}

// row is a Probe before it knows its machine.
type row struct {
	name, about string
	run         func(context.Context, *Machine) []Verdict
}

// table lists what can be found out about any machine.
var table = []row{
	{"root", "user and capabilities", privileges},
	{"coracle", "another coracle on this machine", running},
	{"kernel", "version of the kernel", kernel},
	{"processor", "number and kind of processors", processor},
	{"memory", "memory of the machine and of its cgroup", memory},
	{"limits", "open files, processes, threads", limits},
	{"clock", "the time, and whether it is kept", clock},
	{"hostname", "the machine's name and its name in the cluster", hostname},
	{"cgroups", "controllers, and whether cgroups can be made", cgroups},
	{"namespaces", "namespaces of pods, by making some", namespaces},
	{"overlayfs", "image layers, by mounting some", overlayfs},
	{"modules", "modules of the running kernel", modules},
	{"seccomp", "filters of system calls", seccomp},
	{"device-rules", "pods' access to devices", deviceRules},
	{"links", "bridge, veth and vxlan, by making some", links},
	{"nftables", "what Services are made of, by making some", ruleset},
	{"bridge-netfilter", "pods of one node behind a Service", bridgeNetfilter},
	{"conntrack", "table of connections", conntrack},
	{"sysctls", "kernel settings that coracle makes", sysctls},
	{"security-modules", "SELinux and AppArmor", securityModules},
	{"data-dir", "data directory: can be written and executed in", dataDir},
	{"run-dir", "run directory: can be written", runDir},
	{"disk-space", "space and inodes of the data directory", diskSpace},
	{"disk-latency", "writing and syncing in the data directory", diskLatency},
	{"file-system", "kind of file system of the data directory", fileSystem},
	{"secret-files", "who may read keys", secretFiles},
	{"registries", "registries.yaml: mirrors and credentials", registries},
	{"ports", "ports that coracle listens on", ports},
	{"address", "the node's address", address},
	{"routes", "routes into the networks of pods and Services", routes},
	{"mtu", "size of packets between nodes", mtu},
	{"forwarding", "routing between interfaces", forwarding},
	{"reverse-path", "packets that come back another way", reversePath},
	{"firewall", "rules of others that drop packets of pods", firewall},
	{"name-servers", "name servers of the machine", nameServers},
	{"proxy", "proxies in the environment", proxy},
	{"server", "the server to join", server},
	{"other-kubernetes", "another Kubernetes, or what is left of one", otherKubernetes},
}

// Probes are all probes of a machine.
func (m *Machine) Probes() []Probe {
	probes := make([]Probe, len(table))
	for i, r := range table {
		probes[i] = Probe{Name: r.name, About: r.about, Run: func(ctx context.Context) []Verdict {
			if os.Geteuid() != 0 && r.name != table[0].name {
				return Skipf("only root can find this out")
			}
			return r.run(ctx, m)
		}}
	}
	return probes
}

// path is a file of the machine.
func (m *Machine) path(name string) string { return filepath.Join(m.Root, name) }

// read is a small file without surrounding space; "" if it is not there.
func (m *Machine) read(name string) string {
	data, err := os.ReadFile(m.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (m *Machine) exists(name string) bool {
	return paths.Exists(m.path(name))
}

// nearest is a directory, or what there is of its path.
func nearest(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || dir == "/" || dir == "." {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
