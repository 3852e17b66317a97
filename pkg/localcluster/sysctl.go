package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machineWide are the settings of the whole machine that coracle changes on the nodes, as paths below /proc/sys.
var machineWide = []string{
	"fs/inotify/max_user_instances", "fs/inotify/max_user_watches",
	"net/netfilter/nf_conntrack_max",
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// Forwarding is switched on for each interface by itself: what others think of the machine's one switch for all stays
// true, and nobody's forwarding ends with the cluster.
const (
	forwardAll  = "net/ipv4/ip_forward"
	forwardEach = "net/ipv4/conf/*/forwarding"
)

// notInterfaces are another name of forwardAll, and what new network namespaces begin with.
var notInterfaces = []string{"net/ipv4/conf/all/forwarding", "net/ipv4/conf/default/forwarding"}

const procSys = "/proc/sys"

// readSysctls are the values of the settings that a cluster changes, as far as this machine has them.
func readSysctls() map[string]string {
	values := map[string]string{}
	for _, name := range append(forwarding(), machineWide...) {
		if value, err := readSysctl(name); err == nil {
			values[name] = value
		}
	}
	return values
}

func readSysctl(name string) (string, error) {
	data, err := os.ReadFile(filepath.Join(procSys, name))
	return strings.TrimSpace(string(data)), err
}

func writeSysctl(name, value string) error {
	return os.WriteFile(filepath.Join(procSys, name), []byte(value), 0o644)
}

// forwarding lists the switch of each interface.
func forwarding() (names []string) {
	found, _ := filepath.Glob(filepath.Join(procSys, forwardEach))
	for _, path := range found {
		if name := strings.TrimPrefix(path, procSys+"/"); !slices.Contains(notInterfaces, name) {
			names = append(names, name)
		}
	}
	return names
}

// forward lets this machine forward the nodes' packets, and the answers.
func forward() error {
	for _, name := range forwarding() {
		if value, err := readSysctl(name); err == nil && value == "1" {
			continue
		}
		if err := writeSysctl(name, "1"); err != nil {
			return fmt.Errorf("letting this machine forward the nodes' packets: %w", err)
		}
	}
	return nil
}

// restoreSysctls gives settings their values back. If somebody has switched forwarding on for all interfaces since,
// it stays on.
func restoreSysctls(old map[string]string) error {
	all, err := readSysctl(forwardAll)
	if err != nil {
		return err
	}
	var errs []error
	for name, value := range old {
		now, err := readSysctl(name)
		isForwarding, _ := filepath.Match(forwardEach, name)
		if err != nil || now == value || isForwarding && all == "1" {
			continue
		}
		errs = append(errs, writeSysctl(name, value))
	}
	return errors.Join(errs...)
}
