package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// podResolvConf returns the file from which the kubelet takes the name servers of pods that use the host's. It is the host's
// own file unless that is missing, or lists only loopback addresses (Docker's 127.0.0.11, a dnsmasq), which do not work
// inside a pod. Then the pods use the cluster's DNS, which runs on the host and can query those name servers.
func podResolvConf(cfg config.Config) (string, error) {
	host := cfg.Node.ResolvConf
	data, err := os.ReadFile(host)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the host's name servers: %w", err)
	}
	missing := err != nil
	if !missing && (!config.LoopbackOnly(data) || cfg.Disabled("dns")) {
		return host, nil
	}
	file := cfg.Dirs.NodeConfig("resolv.conf")
	var servers []netip.Addr
	if !cfg.Disabled("dns") {
		servers = cfg.Network.DNS
	}
	return file, atomicfile.Write(file, withServers(data, servers), 0o600)
}

// withServers replaces the name servers in a resolv.conf and keeps search domains and options.
func withServers(data []byte, servers []netip.Addr) []byte {
	var b bytes.Buffer
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	for line := range strings.Lines(string(data)) {
		switch fields := strings.Fields(line); {
		case len(fields) < 2:
		case fields[0] == "search", fields[0] == "domain", fields[0] == "options":
			b.WriteString(strings.Join(fields, " ") + "\n")
		}
	}
	return b.Bytes()
}
