package host

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/ledger"
)

// sysctl is a kernel setting that a node needs.
type sysctl struct {
	name, value string
	atLeast     bool // a larger value is kept
	required    bool // without it pods have no network
	ipv6        bool // only where pods have IPv6 addresses
}

// sysctls are the kernel settings of a node. The first two route between pods and hosts. The next two hand bridged packets
// to nftables where br_netfilter is loaded. The kubelet, containerd and pods watch many files. The conntrack settings are
// those that kube-proxy would make, and the last five those that the kubelet would make.
var sysctls = []sysctl{
	{name: "net.ipv4.ip_forward", value: "1", required: true},
	{name: "net.ipv6.conf.all.forwarding", value: "1", required: true, ipv6: true},
	{name: "net.bridge.bridge-nf-call-iptables", value: "1"},
	{name: "net.bridge.bridge-nf-call-ip6tables", value: "1", ipv6: true},
	{name: "fs.inotify.max_user_instances", value: "8192", atLeast: true},
	{name: "fs.inotify.max_user_watches", value: "524288", atLeast: true},
	{name: "net.netfilter.nf_conntrack_max", value: "131072", atLeast: true},
	{name: "net.netfilter.nf_conntrack_tcp_timeout_established", value: "86400"},
	{name: "net.netfilter.nf_conntrack_tcp_timeout_close_wait", value: "3600"},
	{name: "vm.overcommit_memory", value: "1"},
	{name: "kernel.panic", value: "10", atLeast: true},
	{name: "kernel.panic_on_oops", value: "1"},
	{name: "kernel.keys.root_maxkeys", value: "1000000", atLeast: true},
	{name: "kernel.keys.root_maxbytes", value: "25000000", atLeast: true},
}

// setSysctls makes the settings. Those that the kernel lacks or that a container may not change are skipped, unless they are
// required.
func setSysctls(l *ledger.Ledger, ipv6 bool) error {
	for _, s := range sysctls {
		have := read(ledger.SysctlFile(s.name))
		if s.ipv6 && !ipv6 || s.satisfied(have) {
			continue
		}
		err := l.SetSysctl(s.name, s.value)
		switch {
		case err == nil:
			logrus.WithField("component", "host").Debugf("set sysctl %s from %s to %s", s.name, have, s.value)
		case s.required:
			return fmt.Errorf("pods need sysctl %s=%s and it cannot be set; set it on the host: %w", s.name, s.value, err)
		case !errors.Is(err, fs.ErrNotExist):
			logrus.WithField("component", "host").WithError(err).Debugf("sysctl %s stays %s", s.name, have)
		}
	}
	return nil
}

// satisfied reports whether the kernel's value need not be changed.
func (s sysctl) satisfied(have string) bool {
	if !s.atLeast {
		return have == s.value
	}
	h, errHave := strconv.ParseInt(have, 10, 64)
	want, errWant := strconv.ParseInt(s.value, 10, 64)
	return errHave == nil && errWant == nil && h >= want
}
