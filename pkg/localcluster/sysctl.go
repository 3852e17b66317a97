package localcluster

import (
	"errors"
	"os"
	"strings"
)

const ipForward = "net.ipv4.ip_forward"

// sysctls are the settings of the whole machine that a cluster changes: the first here, the others on its nodes.
var sysctls = []string{
	ipForward,
	"fs.inotify.max_user_instances", "fs.inotify.max_user_watches",
	"net.netfilter.nf_conntrack_max",
	"vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops",
	"kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes",
}

func sysctlFile(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// readSysctls are the values of those settings that this machine has.
func readSysctls() map[string]string {
	values := map[string]string{}
	for _, name := range sysctls {
		if data, err := os.ReadFile(sysctlFile(name)); err == nil {
			values[name] = strings.TrimSpace(string(data))
		}
	}
	return values
}

// restoreSysctls gives settings their values back.
func restoreSysctls(old map[string]string) error {
	now := readSysctls()
	var errs []error
	for name, value := range old {
		if now[name] != value {
			errs = append(errs, os.WriteFile(sysctlFile(name), []byte(value), 0o644))
		}
	}
	return errors.Join(errs...)
}
