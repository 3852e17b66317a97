package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/network/networkpolicy"
)

// note enters what a node's parts make outside our directories, before any of them runs.
func note(l *ledger.Ledger, cfg config.Config) error {
	// The mount program of the host makes the last one.
	for _, dir := range []string{cniDir(cfg.Dirs), "/var/lib/cni/results", "/var/log/pods", "/var/log/containers", "/run/mount"} {
		if err := l.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := l.Claim(cfg.Dirs.Kubelet, 0o755); err != nil {
		return err
	}
	if err := l.Note(made(cfg)...); err != nil {
		return err
	}
	return refuseForeign(l, cfg)
}

// refuseForeign ends a start that would take a bridge away from whoever made it, with its addresses.
func refuseForeign(l *ledger.Ledger, cfg config.Config) error {
	if cfg.Network.Backend == config.BackendNone {
		return nil
	}
	foreign, err := l.Foreign(ledger.Entry{Kind: ledger.Link, Name: bridge})
	if err == nil && foreign {
		err = fmt.Errorf("there is an interface %s that something else has made, and coracle needs this name: remove it with "+
			"ip link delete %s, or run with --flannel-backend=none", bridge, bridge)
	}
	return err
}

// noteRules returns what notes that rules are about to be added to an nft chain of others.
func noteRules(dirs paths.Dirs) func(chain string) error {
	l := ledger.Open(dirs)
	return func(chain string) error { return l.Note(ledger.Entry{Kind: ledger.NFTRule, Name: chain}) }
}

// made lists the rest: what the parts make when they run.
func made(cfg config.Config) []ledger.Entry {
	entries := []ledger.Entry{
		{Kind: ledger.Cgroup, Name: "/kubepods"},
		{Kind: ledger.Cgroup, Name: "/kubepods.slice"},
		{Kind: ledger.NFTTable, Name: "ip cni_hostport"},
		{Kind: ledger.NFTTable, Name: "ip6 cni_hostport"},
	}
	if !cfg.Disabled("kube-proxy") {
		entries = append(entries,
			ledger.Entry{Kind: ledger.NFTTable, Name: "ip kube-proxy"},
			ledger.Entry{Kind: ledger.NFTTable, Name: "ip6 kube-proxy"})
	}
	if policies(cfg) {
		entries = append(entries,
			ledger.Entry{Kind: ledger.NFTTable, Name: networkpolicy.Table},
			ledger.Entry{Kind: ledger.NFTTable, Name: networkpolicy.Guard})
	}
	if cfg.Network.Backend != config.BackendNone {
		entries = append(entries,
			ledger.Entry{Kind: ledger.File, Name: cfg.Dirs.CNIConfig()},
			ledger.Entry{Kind: ledger.Link, Name: bridge},
			ledger.Entry{Kind: ledger.NFTTable, Name: "ip flannel-ipv4"},
			ledger.Entry{Kind: ledger.NFTTable, Name: "ip6 flannel-ipv6"})
		for _, cidr := range cfg.Network.ClusterCIDRs {
			entries = append(entries, ledger.Entry{Kind: ledger.PodNetwork, Name: cidr.String()})
		}
	}
	if cfg.Network.Backend == config.VXLAN {
		entries = append(entries,
			ledger.Entry{Kind: ledger.Link, Name: "flannel.1"},
			ledger.Entry{Kind: ledger.Link, Name: "flannel-v6.1"})
	}
	return entries
}

// setPath makes nft and the other tools of the payload reachable for parts that look for them by name. The host's
// own come first, except for nft: kube-proxy and flannel are tested with ours.
func setPath(dirs paths.Dirs) error {
	list := filepath.SplitList(os.Getenv("PATH"))
	if len(list) == 0 {
		list = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	}
	list = slices.DeleteFunc(list, func(dir string) bool { return dir == dirs.Bin() || dir == dirs.BusyboxLinks() })
	list = append([]string{dirs.Bin()}, append(list, dirs.BusyboxLinks())...)
	return os.Setenv("PATH", strings.Join(list, string(os.PathListSeparator)))
}

// cniDir is where containerd looks for CNI configurations.
func cniDir(dirs paths.Dirs) string { return filepath.Dir(dirs.CNIConfig()) }

// hasFiles reports whether there is anything in a directory, which may not exist.
func hasFiles(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

func hasIPv6(cfg config.Config) bool {
	for _, cidr := range cfg.Network.ClusterCIDRs {
		if cidr.Addr().Is6() {
			return true
		}
	}
	return false
}

// containerdLevel is the level of containerd's own lines. What it calls info is a line for every plugin and every
// step of every pod, so it is shown only to those who ask for it.
func containerdLevel(cfg config.Log) logrus.Level {
	level := logs.Level(cfg, "containerd")
	if _, asked := cfg.Levels["containerd"]; !asked && level == logrus.InfoLevel {
		return logrus.WarnLevel
	}
	return level
}
