package front

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/heldsocket"
)

// DefaultPath is the PATH of a process whose environment has none, as container runtimes start them.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is the environment of the child processes: this process's, without its secrets. Its PATH finds coracle's tools
// first, then the host's, and the applets of coracle's busybox last, for hosts that lack a tool. Proxies are kept, and
// NO_PROXY is extended by everything inside the cluster.
func environment(cfg config.Config) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = DefaultPath
	}
	bin := cfg.Dirs.Bin()
	env := []string{"PATH=" + bin + ":" + path + ":" + filepath.Join(bin, "busybox.d")}
	proxied, secrets := false, config.SecretVariables()
	var direct []string
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case name == "PATH", name == "NOTIFY_SOCKET", name == heldsocket.Variable, strings.HasPrefix(name, "WATCHDOG_"), slices.Contains(secrets, name): // what child processes do not need
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
	return append(env, "NO_PROXY="+list, "no_proxy="+list) // programs read either spelling
}

// proxies are the variables that name a proxy, in lower case. Both spellings are in use.
var proxies = []string{"http_proxy", "https_proxy", "all_proxy"}

// inside lists what no proxy reaches: this machine, other nodes as far as they are known, and the networks and names of the
// cluster.
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

// neighbours returns the networks of the given addresses of this machine, because most nodes that join later have addresses
// there. Without them etcd would talk to other members through the proxy.
func neighbours(ips []netip.Addr) (out []string) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the user can list more in NO_PROXY
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && slices.Contains(ips, p.Addr()) && !p.IsSingleIP() {
			out = append(out, p.Masked().String())
		}
	}
	return out
}

// unique returns the list without surrounding blanks, empty entries and duplicates, in the same order.
func unique(list []string) (out []string) {
	for _, e := range list {
		if e = strings.TrimSpace(e); e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}
