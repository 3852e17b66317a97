package footprint

import "github.com/coracle-dev/coracle/pkg/core/ledger"

// Sysctl is a kernel setting that a node needs.
type Sysctl struct {
	Name, Value string
	AtLeast     bool // a larger value is kept
	Required    bool // without it pods have no network
	IPv6        bool // only where pods have IPv6 addresses
}

// Sysctls returns the kernel settings of a node. The first two route between pods and hosts. The next two hand bridged
// packets to nftables where br_netfilter is loaded. The kubelet, containerd and pods watch many files. The conntrack settings
// are those that kube-proxy would make, and the last five those that the kubelet would make. Besides them a node sets
// accept_ra of interfaces that have an IPv6 default route.
func Sysctls() []Sysctl {
	return []Sysctl{
		{Name: "net.ipv4.ip_forward", Value: "1", Required: true},
		{Name: "net.ipv6.conf.all.forwarding", Value: "1", Required: true, IPv6: true},
		{Name: "net.bridge.bridge-nf-call-iptables", Value: "1"},
		{Name: "net.bridge.bridge-nf-call-ip6tables", Value: "1", IPv6: true},
		{Name: "fs.inotify.max_user_instances", Value: "8192", AtLeast: true},
		{Name: "fs.inotify.max_user_watches", Value: "524288", AtLeast: true},
		{Name: "net.netfilter.nf_conntrack_max", Value: "131072", AtLeast: true},
		{Name: "net.netfilter.nf_conntrack_tcp_timeout_established", Value: "86400"},
		{Name: "net.netfilter.nf_conntrack_tcp_timeout_close_wait", Value: "3600"},
		{Name: "vm.overcommit_memory", Value: "1"},
		{Name: "kernel.panic", Value: "10", AtLeast: true},
		{Name: "kernel.panic_on_oops", Value: "1"},
		{Name: "kernel.keys.root_maxkeys", Value: "1000000", AtLeast: true},
		{Name: "kernel.keys.root_maxbytes", Value: "25000000", AtLeast: true},
	}
}

// sysctlEntries returns one ledger entry for each setting. The old values are in the ledger only.
func sysctlEntries() (all []ledger.Entry) {
	for _, s := range Sysctls() {
		all = append(all, ledger.Entry{Kind: ledger.Sysctl, Name: s.Name})
	}
	return all
}
