package host

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// modules are kernel modules that the kernel does not load by itself at first use.
var modules = []struct {
	name, shows string // shows is a file that exists while the module is loaded
	why         string // what does not work without it; "" if that is not worth a warning
}{
	{"br_netfilter", "/proc/sys/net/bridge/bridge-nf-call-iptables", "pods do not reach pods of the same node through a Service"},
	{"nf_conntrack", "/proc/sys/net/netfilter/nf_conntrack_max", ""},
}

// loadModules loads missing kernel modules. Modules that are still missing, as in a container, are a warning: the kernel may
// have them built in.
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
		line, _, _ := strings.Cut(string(out), "\n")
		logrus.WithField("component", "host").WithError(err).
			Warnf("the kernel module %s is missing: %s; load it on the host: modprobe %s (%s)", m.name, m.why, m.name, line)
	}
}
