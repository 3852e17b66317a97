package check

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Machine is the machine that is checked.
type Machine struct {
	// Config is the configuration with which coracle runs, or would run.
	Config config.Config
	// Running is true if coracle runs on the machine: its ports and directories are in use by itself.
	Running bool
	// Environ is the environment of coracle.
	Environ  []string
	starting bool // Start runs the probes: only what prevents coracle from starting counts
	// Root is put in front of /proc, /sys and /etc; "" except in tests.
	Root string
}

// when has a bit for each command that runs a probe.
type when int

const (
	before       when = 1 << iota // `coracle check`
	running                       // `coracle doctor`
	atStart                       // `coracle server` and `coracle agent`, before they start anything
	firstAtStart                  // like atStart, but before all others, whose results would be wrong if it fails

	always = before | running
)

// row is a probe of the table.
type row struct {
	name, about string
	when        when
	run         func(context.Context, *Machine) []Verdict
}

// table lists the probes of a machine.
var table = []row{
	{"root", "user and capabilities", always | firstAtStart, privileges},
	{"coracle", "another coracle on this machine", always, otherCoracle},
	{"kernel", "version of the kernel", always, kernel},
	{"processor", "number and kind of processors", always, processor},
	{"memory", "memory of the machine and of its cgroup", always, memory},
	{"limits", "open files, processes, threads", always, limits},
	{"clock", "the clock, and whether it is synchronised", always | atStart, clock},
	{"hostname", "the machine's name and its name in the cluster", always, hostname},
	{"cgroups", "controllers, and whether cgroups can be made", always | atStart, cgroups},
	{"namespaces", "namespaces of pods, by making some", always, namespaces},
	{"overlayfs", "image layers, by mounting some", always | atStart, overlayfs},
	{"modules", "modules of the running kernel", always, modules},
	{"seccomp", "filters of system calls", always | firstAtStart, seccomp},
	{"device-rules", "pods' access to devices", always, deviceRules},
	{"links", "bridge, veth and vxlan or wireguard, by making some", always | atStart, links},
	{"nftables", "what Services are made of, by making some", always | atStart, ruleset},
	{"bridge-netfilter", "Services whose pods run on the same node", always | atStart, bridgeNetfilter},
	{"conntrack", "the table of connections", always, conntrack},
	{"sysctls", "kernel settings that coracle changes", always, sysctls},
	{"kernel-defaults", "kernel settings that the kubelet needs and does not change with --profile=cis", always | atStart, kernelDefaults},
	{"security-modules", "SELinux and AppArmor", always, securityModules},
	{"data-dir", "data directory: writable, and programs can be executed", always | atStart, dataDir},
	{"run-dir", "run directory: writable", always | atStart, runDir},
	{"disk-space", "space and inodes of the data directory", always | atStart, diskSpace},
	{"disk-latency", "writing and syncing in the data directory", always, diskLatency},
	{"file-system", "kind of file system of the data directory", always, fileSystem},
	{"secret-files", "modes of files with keys", always | atStart, secretFiles},
	{"registries", "registries.yaml: mirrors and credentials", always | atStart, registriesFile},
	{"ports", "ports that coracle listens on", always | atStart, ports},
	{"address", "the node's address", always | atStart, address},
	{"routes", "routes into the networks of pods and Services", always, routes},
	{"mtu", "size of packets between nodes", always, mtu},
	{"forwarding", "routing between interfaces", always, forwarding},
	{"reverse-path", "filters of packets that come in by another interface", always, reversePath},
	{"firewall", "rules of other programs that drop packets of pods", always, firewall},
	{"name-servers", "name servers of the machine", always, nameServers},
	{"proxy", "proxies in the environment", always, proxy},
	{"server", "the server to join", always, server},
	{"other-kubernetes", "another Kubernetes, or leftovers of one", always, otherKubernetes},
}

// Probes returns the probes that `coracle check` runs, or `coracle doctor` if coracle runs on the machine.
func (m *Machine) Probes() (probes []Probe) {
	now := before
	if m.Running {
		now = running
	}
	for _, r := range table {
		if r.when&now == 0 {
			continue
		}
		probes = append(probes, Probe{Name: r.name, About: r.about, Run: func(ctx context.Context) []Verdict { return r.run(ctx, m) }})
	}
	return probes
}

// path returns the path of a file of the machine.
func (m *Machine) path(name string) string { return filepath.Join(m.Root, name) }

// read returns a small file without surrounding space; "" if it cannot be read.
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

// nearest returns a directory, or if it does not exist its nearest parent that does.
func nearest(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || dir == "/" || dir == "." {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
