// Package footprint lists everything that the parts of a node make outside coracle's own directories: network
// interfaces, nft tables and rules, mounts, cgroups, kernel settings, files. The start of a node notes these things in the ledger, `reset`
// goes by them when the ledger is unreadable, and `check`, `doctor` and the support bundle recognise them.
//
// The table is one light package, because most parts link Kubernetes or flannel, and `reset` and `check` must not.
package footprint

import (
	"path/filepath"
	"slices"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// Names that the parts themselves use.
const (
	Bridge        = "cni0"         // network interface to which pods are attached
	VXLAN         = "flannel.1"    // overlay interface for IPv4
	VXLAN6        = "flannel-v6.1" // overlay interface for IPv6
	WireGuard     = "flannel-wg"   // the same with WireGuard
	WireGuard6    = "flannel-wg-v6"
	ServiceLink   = "coracle0"   // interface that carries routes and addresses on a machine without a network
	NetNSDir      = "/run/netns" // where containerd and `ip netns` mount network namespaces
	PodLogs       = "/var/log/pods"
	ContainerLogs = "/var/log/containers"
	CNIResults    = "/var/lib/cni/results"
	// PolicyTable and PolicyBridgeTable are the nft tables of network policies, with their families.
	PolicyTable       = "inet coracle-policy"
	PolicyBridgeTable = "bridge coracle-policy"
	// WireTable is the nft table that decides what other machines may send to pods.
	WireTable = "inet coracle-wire"
	// PortTable is the nft table that holds pods to their own addresses.
	PortTable = "bridge coracle-ports"
	// AddressTable is the nft table that keeps clients of announced addresses from the node's own processes.
	AddressTable = "inet coracle-addresses"
	// Kmsg and MachineID are files that the kubelet reads; a node makes them where the machine has none.
	Kmsg      = "/dev/kmsg"
	MachineID = "/etc/machine-id"
	// LogindConfig is where the kubelet tells logind how long it may delay a shutdown.
	LogindConfig = "/etc/systemd/logind.conf.d/99-kubelet.conf"
	// AppArmorProfile is the profile that containerd loads for containers that choose none.
	AppArmorProfile = "cri-containerd.apparmor.d"
)

// Part is a part of a node with what it makes.
type Part struct {
	Name string
	// Runs reports whether a node with this configuration has the part. Nil: every node has it.
	Runs func(config.Config) bool
	// Makes lists what the part makes on every machine. Entries of the kind Dir are directories that must exist, and
	// of the kind Contents directories of which only the content is coracle's if they exist.
	// Nil: nothing.
	Makes func(config.Config) []ledger.Entry
	// OnDemand lists what the part makes only where the machine needs it, and notes itself. Other programs do not
	// use these names.
	OnDemand []ledger.Entry
	// Shared is like OnDemand for names that other programs use too: only the ledger can tell who made them.
	Shared []ledger.Entry
}

// Parts returns the table of all parts.
func Parts() []Part {
	return []Part{
		{Name: "host", OnDemand: slices.Concat(
			entries(ledger.Link, ServiceLink), entries(ledger.Mount, NetNSDir)),
			Shared: slices.Concat(entries(ledger.File, Kmsg, MachineID, LogindConfig), entries(ledger.AppArmor, AppArmorProfile), entries(ledger.Mount, Kmsg), sysctlEntries())},
		{Name: "containerd", Makes: func(cfg config.Config) []ledger.Entry {
			return slices.Concat(entries(ledger.Dir, filepath.Dir(cfg.Dirs.CNIConfig()), CNIResults), entries(ledger.NFTTable, "ip cni_hostport", "ip6 cni_hostport"))
		}},
		{Name: "kubelet", Makes: func(cfg config.Config) []ledger.Entry {
			return slices.Concat(
				entries(ledger.Dir, PodLogs, ContainerLogs, "/run/mount"), // the last is made by the machine's mount program
				entries(ledger.Contents, cfg.Dirs.Kubelet),
				entries(ledger.Cgroup, "/kubepods", "/kubepods.slice"))
		}},
		{Name: "kube-proxy", Runs: func(cfg config.Config) bool { return !cfg.Disabled("kube-proxy") },
			Makes: always(entries(ledger.NFTTable, "ip kube-proxy", "ip6 kube-proxy")...)},
		{Name: "network-policy", Runs: NetworkPolicies, Makes: always(entries(ledger.NFTTable, PolicyTable, PolicyBridgeTable)...)},
		{Name: "pod network", Runs: podNetwork, Makes: func(cfg config.Config) []ledger.Entry {
			made := slices.Concat(entries(ledger.File, cfg.Dirs.CNIConfig()), entries(ledger.Link, Bridge),
				entries(ledger.NFTTable, "ip flannel-ipv4", "ip6 flannel-ipv6", PortTable))
			for _, cidr := range cfg.Network.ClusterCIDRs {
				made = append(made, ledger.Entry{Kind: ledger.PodNetwork, Name: cidr.String()})
			}
			return made
		}},
		{Name: "vxlan", Runs: func(cfg config.Config) bool { return cfg.Network.Backend == config.VXLAN },
			Makes: always(entries(ledger.Link, VXLAN, VXLAN6)...)},
		{Name: "wireguard", Runs: func(cfg config.Config) bool { return cfg.Network.Backend == config.WireGuard },
			Makes: always(entries(ledger.Link, WireGuard, WireGuard6)...)},
		{Name: "announced addresses", Makes: always(entries(ledger.NFTTable, AddressTable)...)},
		{Name: "wire", Runs: Overlay, Makes: always(entries(ledger.NFTTable, WireTable)...)},
		// Rules that let packets of pods through are added to any chain that drops them; these are the usual names.
		{Name: "forwarding", OnDemand: entries(ledger.NFTRule, "ip filter FORWARD", "ip6 filter FORWARD")},
	}
}

// podNetwork reports whether coracle makes the network of pods.
func podNetwork(cfg config.Config) bool { return cfg.Network.Backend != config.BackendNone }

// NetworkPolicies reports whether coracle enforces network policies: another pod network brings its own enforcement.
func NetworkPolicies(cfg config.Config) bool {
	return podNetwork(cfg) && !cfg.Disabled("network-policy")
}

// Overlay reports whether packets of pods travel between nodes within other packets.
func Overlay(cfg config.Config) bool {
	return cfg.Network.Backend == config.VXLAN || cfg.Network.Backend == config.WireGuard
}

// Of returns what a node with this configuration makes on every machine.
func Of(cfg config.Config) (all []ledger.Entry) {
	for _, p := range Parts() {
		if p.Makes != nil && (p.Runs == nil || p.Runs(cfg)) {
			all = append(all, p.Makes(cfg)...)
		}
	}
	return all
}

// Possible returns the things that nodes make with this or any other configuration and that can be told from those of
// other programs by their names. The configuration may be empty.
func Possible(cfg config.Config) (all []ledger.Entry) {
	for _, p := range Parts() {
		if p.Makes != nil {
			all = append(all, p.Makes(cfg)...)
		}
		all = append(all, p.OnDemand...)
	}
	return slices.DeleteFunc(all, func(e ledger.Entry) bool {
		// Routes to pods may be those of another pod network, if coracle made none.
		return e.Kind == ledger.Dir || e.Kind == ledger.Contents || e.Kind == ledger.PodNetwork && !podNetwork(cfg)
	})
}

// IsLink reports whether a network interface has a name that coracle gives.
func IsLink(name string) bool {
	return slices.Contains(Possible(config.Config{}), ledger.Entry{Kind: ledger.Link, Name: name})
}

// Note enters in the ledger what a node with this configuration makes, and makes the directories.
func Note(l *ledger.Ledger, cfg config.Config) error {
	var rest []ledger.Entry
	for _, e := range Of(cfg) {
		var err error
		switch e.Kind {
		case ledger.Dir:
			err = l.MkdirAll(e.Name, 0o755)
		case ledger.Contents:
			err = l.Claim(e.Name, 0o755)
		default:
			rest = append(rest, e)
		}
		if err != nil {
			return err
		}
	}
	return l.Note(rest...)
}

// always returns a Makes whose result does not depend on the configuration.
func always(all ...ledger.Entry) func(config.Config) []ledger.Entry {
	return func(config.Config) []ledger.Entry { return all }
}

// entries returns one entry of a kind for each name.
func entries(kind ledger.Kind, names ...string) []ledger.Entry {
	all := make([]ledger.Entry, len(names))
	for i, name := range names {
		all[i] = ledger.Entry{Kind: kind, Name: name}
	}
	return all
}
