package config

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// family returns the name of an address's IP family.
func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func families(addrs []netip.Addr) string {
	names := make([]string, len(addrs))
	for i, a := range addrs {
		names[i] = family(a)
	}
	return strings.Join(names, ", ")
}

func texts(addrs []netip.Addr) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.String()
	}
	return out
}

func prefixAddrs(prefixes []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.Addr()
	}
	return out
}

// checkPair reports a list that is neither one address nor one of each IP family.
func (d *decoder) checkPair(v *value, addrs []netip.Addr) {
	if len(addrs) > 2 || len(addrs) == 2 && addrs[0].Is4() == addrs[1].Is4() {
		d.add("%s: %s is %s; give one, or one IPv4 and one IPv6", v.label(), v, families(addrs))
	}
}

// checkFamilies reports CIDR lists with wrong IP families.
func (d *decoder) checkFamilies(r raw, n Network) {
	for _, x := range []struct {
		v     *value
		found []netip.Prefix
	}{{r["cluster-cidr"], n.ClusterCIDRs}, {r["service-cidr"], n.ServiceCIDRs}} {
		if len(x.v.items) == 0 {
			d.add("%s: give at least one CIDR", x.v.label())
		}
		d.checkPair(x.v, prefixAddrs(x.found))
	}
	cluster, service := prefixAddrs(n.ClusterCIDRs), prefixAddrs(n.ServiceCIDRs)
	whole := len(n.ClusterCIDRs) == len(r["cluster-cidr"].items) && len(n.ServiceCIDRs) == len(r["service-cidr"].items)
	if whole && families(cluster) != families(service) {
		d.add("%s is %s but %s is %s; both need the same IP families in the same order",
			r["cluster-cidr"].label(), families(cluster), r["service-cidr"].label(), families(service))
	}
}

// checkSizes checks ranges against the limits of kube-apiserver and the node CIDR allocator.
func (d *decoder) checkSizes(r raw) {
	ownMask := slices.ContainsFunc(r["kube-controller-manager-arg"].items, func(it item) bool {
		return strings.HasPrefix(it.text, "node-cidr-mask-size")
	})
	check := func(v *value, min4, max4, min6, max6 int, why string) {
		for _, it := range v.items {
			p, err := netip.ParsePrefix(it.text)
			if err != nil {
				continue
			}
			least, most := min4, max4
			if p.Addr().Is6() {
				least, most = min6, max6
			}
			if p.Bits() < least || p.Bits() > most {
				d.add("%s: %s must be from /%d to /%d: %s", it.label(v.setting), p, least, most, why)
			}
		}
	}
	check(r["service-cidr"], 12, 28, 108, 124, "Kubernetes allows 2^20 Services at most, and the DNS Service needs the tenth address")
	if !ownMask {
		check(r["cluster-cidr"], 8, 24, 48, 64, "each node gets a /24 (IPv4) or /64 (IPv6) of it, and there may be 2^16 of those")
	}
}

// defaultDNS returns the tenth address of each service range.
func (d *decoder) defaultDNS(v *value, services []netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for _, p := range services {
		a := p.Addr()
		for range 10 {
			a = a.Next()
		}
		out = append(out, a)
	}
	v.derive(texts(out)...)
	return out
}

// checkDNS checks given DNS addresses against the service ranges.
func (d *decoder) checkDNS(v *value, n Network) {
	d.checkPair(v, n.DNS)
	if len(n.ServiceCIDRs) > 0 && families(n.DNS) != families(prefixAddrs(n.ServiceCIDRs)) {
		d.add("%s is %s but --service-cidr is %s; both need the same IP families in the same order",
			v.label(), families(n.DNS), families(prefixAddrs(n.ServiceCIDRs)))
		return
	}
	for i, a := range n.DNS {
		if i < len(n.ServiceCIDRs) && !n.ServiceCIDRs[i].Contains(a) {
			d.add("%s: %s is not in the service range %s", v.items[i].label(v.setting), a, n.ServiceCIDRs[i])
		}
	}
}

// checkOverlaps reports ranges and addresses that collide, naming both settings.
func (d *decoder) checkOverlaps(r raw, cfg Config) {
	for _, c := range cfg.Network.ClusterCIDRs {
		for _, s := range cfg.Network.ServiceCIDRs {
			if c.Overlaps(s) {
				d.add("%s %s and %s %s overlap; pods and Services need ranges of their own",
					r["cluster-cidr"].label(), c, r["service-cidr"].label(), s)
			}
		}
		d.checkInside(r["cluster-cidr"], c, r, cfg.Node.IPs)
	}
	for _, s := range cfg.Network.ServiceCIDRs {
		d.checkInside(r["service-cidr"], s, r, cfg.Node.IPs)
	}
}

func (d *decoder) checkInside(v *value, p netip.Prefix, r raw, ips []netip.Addr) {
	for _, a := range ips {
		if p.Contains(a) {
			d.add("%s: the node's address %s lies in %s %s; choose another range, or another address",
				r["node-ip"].label(), a, v.label(), p)
		}
	}
}

// longestSocket is the kernel's limit for a socket's path, without the terminating zero byte.
const longestSocket = 107

// deepestSocket is the longest path of a socket below the run directory.
const deepestSocket = "containerd/containerd.sock.ttrpc"

// systemDirs lists directories of the system. They cannot be coracle's, because coracle reset removes its directories.
var systemDirs = [...]string{"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root",
	"/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin", "/usr/sbin", "/usr/share",
	"/var", "/var/cache", "/var/lib", "/var/lock", "/var/log", "/var/run", "/var/spool", "/var/tmp"}

// checkDirs reports directories that cannot work, alone or together.
func (d *decoder) checkDirs(r raw, cfg Config) {
	roots := []struct {
		v    *value
		path string
	}{{r["data-dir"], cfg.Dirs.Data}, {r["run-dir"], cfg.Dirs.Run}, {r["kubelet-root-dir"], cfg.Dirs.Kubelet}}
	for i, x := range roots {
		if slices.Contains(systemDirs[:], x.path) {
			d.add("%s: %s belongs to the system, and coracle removes its directory on reset; choose one below it", x.v.label(), x.path)
		}
		if bad := strings.IndexFunc(x.path, breaksMounts); bad >= 0 {
			d.add("%s: %q has the character %q in it, which mount options and tables cannot hold", x.v.label(), x.path, []rune(x.path[bad:])[0])
		}
		for _, y := range roots[i+1:] {
			if x.path == y.path {
				d.add("%s and %s are both %s; each needs its own", x.v.label(), y.v.label(), x.path)
			}
		}
	}
	if n := len(filepath.Join(cfg.Dirs.Run, deepestSocket)); n > longestSocket {
		d.add("%s: %s is too long: sockets in it would have paths of %d bytes, and the kernel takes %d; choose a shorter one",
			r["run-dir"].label(), cfg.Dirs.Run, n, longestSocket)
	}
}

// breaksMounts reports characters that are separators in overlayfs's options and in /proc/self/mountinfo.
func breaksMounts(r rune) bool {
	return strings.ContainsRune(":,\\\"'", r) || unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
}
