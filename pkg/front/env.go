package front

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// DefaultPath is the PATH of a process that was started with none, as by a container runtime.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is that of the halves: ours with a PATH that finds our tools first, then the host's, and our busybox
// only for what the host does not have. A proxy that we were given is not for what is inside the cluster.
func environment(cfg config.Config) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = DefaultPath
	}
	bin := cfg.Dirs.Bin()
	env := []string{"PATH=" + bin + ":" + path + ":" + filepath.Join(bin, "busybox.d")}
	proxied := false
	var direct []string
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case name == "PATH", name == "NOTIFY_SOCKET", strings.HasPrefix(name, "WATCHDOG_"), slices.Contains(secrets, name):
			continue
		case strings.EqualFold(name, "no_proxy"):
			direct = append(direct, strings.Split(value, ",")...)
		case slices.Contains(proxies, strings.ToLower(name)):
			proxied = proxied || value != ""
		}
		env = append(env, e)
	}
	if !proxied {
		return env
	}
	env = slices.DeleteFunc(env, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.EqualFold(name, "no_proxy")
	})
	list := strings.Join(unique(append(direct, inside(cfg)...)), ",")
	return append(env, "NO_PROXY="+list, "no_proxy="+list) // some read one, some the other
}

// secrets are variables that the halves do not need.
var secrets = []string{"CORACLE_TOKEN", "CORACLE_AGENT_TOKEN"}

// proxies are the variables that name a proxy, in lower case: both spellings are in use.
var proxies = []string{"http_proxy", "https_proxy", "all_proxy"}

// inside is what no proxy can reach: the machine itself, other nodes as far as they can be known, the cluster's networks
// and its names.
func inside(cfg config.Config) []string {
	out := []string{"127.0.0.0/8", "::1", "localhost"}
	for _, p := range slices.Concat(cfg.Network.ClusterCIDRs, cfg.Network.ServiceCIDRs) {
		out = append(out, p.String())
	}
	for _, ip := range cfg.Node.IPs {
		out = append(out, ip.String())
	}
	out = append(out, neighbours(cfg.Node.IPs)...)
	for _, server := range cfg.Join.Servers {
		if host, _, err := net.SplitHostPort(server); err == nil {
			out = append(out, host)
		}
	}
	if cfg.API.Advertise.IsValid() {
		out = append(out, cfg.API.Advertise.String())
	}
	out = append(out, ".svc")
	if cfg.Network.Domain != "" {
		out = append(out, "."+cfg.Network.Domain)
	}
	return out
}

// neighbours are the networks that the machine is in with the given addresses: other nodes, which may join at any time,
// are most often there. etcd would else talk to other members through the proxy.
func neighbours(ips []netip.Addr) (out []string) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // then the user says what else is inside
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && slices.Contains(ips, p.Addr()) && !p.IsSingleIP() {
			out = append(out, p.Masked().String())
		}
	}
	return out
}

// unique is the list without blanks, empty entries and repetitions, in its order.
func unique(list []string) (out []string) {
	for _, e := range list {
		if e = strings.TrimSpace(e); e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}
