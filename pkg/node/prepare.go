package node

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/ledger"
	"github.com/coracle-dev/coracle/pkg/core/logs"
	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// refuseForeign returns an error if the bridge exists and was made by another program, which would lose it.
func refuseForeign(l *ledger.Ledger, cfg config.Config) error {
	if cfg.Network.Backend == config.BackendNone {
		return nil
	}
	foreign, err := l.Foreign(ledger.Entry{Kind: ledger.Link, Name: footprint.Bridge})
	if err == nil && foreign {
		err = fmt.Errorf("there is an interface %s that something else has made, and coracle needs this name: remove it with "+
			"ip link delete %s, or run with --flannel-backend=none", footprint.Bridge, footprint.Bridge)
	}
	return err
}

// noteRules returns a function that records in the ledger that rules are about to be added to an nft chain of another program.
func noteRules(dirs paths.Dirs) func(chain string) error {
	l := ledger.Open(dirs)
	return func(chain string) error { return l.Note(ledger.Entry{Kind: ledger.NFTRule, Name: chain}) }
}

// setPath adds the tools of the payload to PATH, for components that run them by name. The host's own tools come first, except
// for nft: kube-proxy and flannel are tested with the nft of the payload.
func setPath(dirs paths.Dirs) error {
	list := filepath.SplitList(os.Getenv("PATH"))
	if len(list) == 0 {
		list = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	}
	list = slices.DeleteFunc(list, func(dir string) bool { return dir == dirs.Bin() || dir == dirs.BusyboxLinks() })
	list = append([]string{dirs.Bin()}, append(list, dirs.BusyboxLinks())...)
	return os.Setenv("PATH", strings.Join(list, string(os.PathListSeparator)))
}

// cniDir is the directory of CNI configurations.
func cniDir(dirs paths.Dirs) string { return filepath.Dir(dirs.CNIConfig()) }

// hasFiles reports whether a directory exists and is not empty.
func hasFiles(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

func hasIPv6(cfg config.Config) bool {
	return slices.ContainsFunc(cfg.Network.ClusterCIDRs, func(cidr netip.Prefix) bool { return cidr.Addr().Is6() })
}

// containerdLevel is the log level of containerd. At level info it logs every plugin and every step of every pod, so this level
// applies only if the user sets it for containerd.
func containerdLevel(cfg config.Log) logrus.Level {
	level := logs.Level(cfg, "containerd")
	if _, asked := cfg.Levels["containerd"]; !asked && level == logrus.InfoLevel {
		return logrus.WarnLevel
	}
	return level
}
