package host

import (
	"context"
	"os/exec"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// modules are what the kernel does not load by itself at first use, and where it shows that they are there.
var modules = []struct {
	name, shows string
	why         string // what does not work without it; "" is nothing that anybody would notice
}{
	{"br_netfilter", "/proc/sys/net/bridge/bridge-nf-call-iptables", "pods do not reach pods of the same node through a Service"},
	{"nf_conntrack", "/proc/sys/net/netfilter/nf_conntrack_max", ""},
}

// loadModules loads kernel modules that are missing. A kernel may have them built in, and a container may not load
// any: what is missing in the end is said, not a failure.
func loadModules() {
	for _, m := range modules {
		if paths.Exists(m.shows) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		out, err := exec.CommandContext(ctx, "modprobe", m.name).CombinedOutput()
		cancel()
		if paths.Exists(m.shows) || m.why == "" {
			continue
		}
		logrus.WithField("component", "host").WithError(err).
			Warnf("the kernel module %s is missing: %s; load it on the host: modprobe %s (%s)", m.name, m.why, m.name, firstLine(out))
	}
}

// firstLine shortens what a command printed.
func firstLine(out []byte) string {
	for i, b := range out {
		if b == '\n' {
			return string(out[:i])
		}
	}
	return string(out)
}
