package check

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
)

// others are processes of other distributions by their name in the kernel, and how to stop each.
var others = map[string]string{
	"kubelet":        "kubeadm reset, or systemctl disable --now kubelet",
	"k3s":            "k3s-uninstall.sh, or systemctl disable --now k3s",
	"k3s-server":     "k3s-uninstall.sh, or systemctl disable --now k3s",
	"k3s-agent":      "k3s-agent-uninstall.sh, or systemctl disable --now k3s-agent",
	"k0s":            "k0s stop && k0s reset",
	"rke2":           "rke2-uninstall.sh, or systemctl disable --now rke2-server",
	"kubelite":       "snap disable microk8s",
	"kube-apiserver": "stop the cluster that it belongs to",
	"microshift":     "systemctl disable --now microshift",
	"kube-proxy":     "stop the cluster that it belongs to",
}

// traces are prefixes of the names of interfaces of other pod networks.
var traces = []string{"cilium_", "cali", "weave", "kube-ipvs0", "kube-bridge", "antrea-gw", "ovn-k8s"}

func otherKubernetes(_ context.Context, m *Machine) []Verdict {
	var out []Verdict
	here, _ := os.Readlink(m.path("/proc/self/ns/net"))
	seen := map[string]bool{}
	for _, p := range m.processes() {
		fix := others[p.Name]
		where, err := os.Readlink(m.path(fmt.Sprintf("/proc/%d/ns/net", p.PID)))
		if fix != "" && !seen[p.Name] && err == nil && where == here { // in a container of its own it does no harm
			seen[p.Name] = true
			out = append(out, Failf(fix, "%s runs (process %d): two of them on one machine conflict over ports, pods and rules", p.Name, p.PID)...)
		}
	}
	var names []string
	links, _ := net.Interfaces()
	for _, l := range links {
		names = append(names, l.Name)
	}
	entries, _ := os.ReadDir(m.path("/etc/cni/net.d"))
	var files []string
	for _, e := range entries {
		files = append(files, e.Name())
	}
	installed := m.Running || m.exists(m.Config.Dirs.Ledger())
	out = append(out, judgeLeftovers(m.Config.Network.Backend, installed, names, files)...)
	return Else(out, Okf("none"))
}

// judgeLeftovers judges interfaces and CNI configurations. Of these, the first by name is used.
func judgeLeftovers(backend config.Backend, installed bool, links, files []string) (out []Verdict) {
	for _, l := range links {
		switch {
		case footprint.IsLink(l) && !installed && backend != config.BackendNone:
			out = append(out, Failf("ip link delete "+l+", if nothing uses it", "there is an interface %s that coracle did not make: the node would not start", l)...)
		case backend != config.BackendNone && slices.ContainsFunc(traces, func(t string) bool { return strings.HasPrefix(l, t) }):
			out = append(out, Warnf("remove the program that made it, or reboot", "the interface %s belongs to another pod network", l)...)
		}
	}
	if backend == config.BackendNone {
		return out
	}
	const own = "10-coracle.conflist"
	for _, f := range files {
		if !strings.HasSuffix(f, ".conf") && !strings.HasSuffix(f, ".conflist") && !strings.HasSuffix(f, ".json") || f == own {
			continue
		}
		if f < own {
			out = append(out, Failf("remove it, or use that network: --flannel-backend=none",
				"/etc/cni/net.d/%s sorts before coracle's file: pods would get that network", f)...)
			continue
		}
		out = append(out, Warnf("remove it if nothing uses it", "/etc/cni/net.d/%s belongs to another pod network; coracle's file sorts first", f)...)
	}
	return out
}
