package check

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/process"
)

// closedChain is a chain of the machine's firewall that drops or rejects what no rule accepts.
type closedChain struct {
	name    string // FAMILY TABLE CHAIN
	forward bool   // it filters forwarded packets; otherwise packets to the machine
	v6      bool   // it sees IPv6
	v4      bool   // it sees IPv4
	policy  bool   // its policy drops, not a rule
	// matches reports whether an accepting rule compares with these bytes: a network, a port, an interface's name.
	matches func(data []byte) bool
}

func firewall(ctx context.Context, m *Machine) []Verdict {
	if m.Config.Network.Backend == config.BackendNone {
		return Skipf("the packets that have to pass depend on the other plugin for the pod network")
	}
	chains, err := closedChains()
	if err != nil {
		return Skipf("the rules cannot be read: %v", err)
	}
	out := append(judgeFirewall(m.Config, m.firewallManager(), chains), m.legacy(ctx)...)
	return Else(out, Okf("no chain of other programs drops packets of pods"))
}

// firewallManager returns the program that manages the machine's firewall, "" if none is known.
func (m *Machine) firewallManager() string {
	switch {
	case slices.ContainsFunc(m.processes(), func(p process.Process) bool { return p.Name == "firewalld" }):
		return "firewalld"
	case strings.Contains(m.read("/etc/ufw/ufw.conf"), "ENABLED=yes"):
		return "ufw"
	}
	return ""
}

// opening is a port that other machines have to reach on this machine.
type opening struct {
	port     uint16
	protocol string
	use      string
}

// openings returns the ports that other machines have to reach.
func openings(cfg config.Config) []opening {
	list := []opening{{10250, "tcp", "the kubelet"}}
	if cfg.Role == config.Server {
		list = append(list, opening{cfg.API.Port, "tcp", "the API"})
		if (cfg.Join.Server != "" || cfg.Join.Joined) && !cfg.Datastore.External() {
			list = append(list, opening{2380, "tcp", "etcd"})
		}
	}
	switch cfg.Network.Backend {
	case config.VXLAN:
		list = append(list, opening{8472, "udp", "packets of pods"})
	case config.WireGuard:
		for _, cidr := range cfg.Network.ClusterCIDRs {
			port := map[bool]uint16{true: 51820, false: 51821}[cidr.Addr().Is4()]
			list = append(list, opening{port, "udp", "packets of pods"})
		}
	}
	return list
}

// judgeFirewall judges what each closed chain would drop. That a chain of another table accepts a packet does not help.
func judgeFirewall(cfg config.Config, manager string, chains []closedChain) (out []Verdict) {
	for _, c := range chains {
		for _, cidr := range cfg.Network.ClusterCIDRs {
			if cidr.Addr().Is6() && !c.v6 || cidr.Addr().Is4() && !c.v4 || c.matches([]byte(footprint.Bridge)) || c.matchesNetwork(cidr) {
				continue
			}
			if c.forward && c.policy {
				out = append(out, Okf("the firewall (%s) drops what no rule accepts; coracle adds rules there that accept %s", c.name, cidr)...)
				continue
			}
			what := "packets from pods to the machine, such as DNS queries"
			if c.forward {
				what = "packets between pods, and between pods and the outside"
			}
			out = append(out, Failf(letThrough(manager, c, cidr), "the firewall (%s) drops what no rule accepts, which includes %s", c.name, what)...)
		}
		if c.forward {
			continue
		}
		var missing []string
		for _, o := range openings(cfg) {
			if !c.matches([]byte{byte(o.port >> 8), byte(o.port)}) {
				missing = append(missing, fmt.Sprintf("%d/%s (%s)", o.port, o.protocol, o.use))
			}
		}
		if missing != nil {
			out = append(out, Warnf(openPorts(manager, c, openings(cfg)), "the firewall (%s) drops connections to %s: other machines need them", c.name, strings.Join(missing, ", "))...)
		}
	}
	return out
}

// matchesNetwork looks for the bytes of a network as rules have them: of the whole address, or of what the mask covers.
func (c closedChain) matchesNetwork(cidr netip.Prefix) bool {
	all := cidr.Masked().Addr().AsSlice()
	return c.matches(all) || c.matches(all[:(cidr.Bits()+7)/8])
}

// letThrough returns commands that make the firewall accept packets of a network.
func letThrough(manager string, c closedChain, cidr netip.Prefix) string {
	switch {
	case manager == "firewalld":
		return fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-source=%s && firewall-cmd --reload", cidr)
	case manager == "ufw" && c.forward:
		return fmt.Sprintf("ufw route allow from %s && ufw route allow to %s", cidr, cidr)
	case manager == "ufw":
		return fmt.Sprintf("ufw allow from %s", cidr)
	}
	if !c.ofIptables() {
		chain := "nft insert rule " + c.name
		family := map[bool]string{false: "ip", true: "ip6"}[cidr.Addr().Is6()]
		if !c.forward {
			return fmt.Sprintf("%s %s saddr %s accept", chain, family, cidr)
		}
		return fmt.Sprintf("%s %s saddr %s accept; %s %s daddr %s accept", chain, family, cidr, chain, family, cidr)
	}
	if !c.forward {
		return fmt.Sprintf("%s -I INPUT -s %s -j ACCEPT", c.iptables(), cidr)
	}
	return fmt.Sprintf("%[1]s -I FORWARD -s %[2]s -j ACCEPT; %[1]s -I FORWARD -d %[2]s -j ACCEPT", c.iptables(), cidr)
}

// ofIptables reports whether the chain is one of iptables. The tables of other firewalls may be called filter as well, mostly inet filter.
func (c closedChain) ofIptables() bool {
	f := strings.Fields(c.name)
	return len(f) == 3 && (f[0] == "ip" || f[0] == "ip6") && f[1] == "filter" && f[2] == strings.ToUpper(f[2])
}

// iptables returns the program for a chain of iptables.
func (c closedChain) iptables() string {
	if strings.HasPrefix(c.name, "ip6 ") {
		return "ip6tables"
	}
	return "iptables"
}

// openPorts returns commands that open ports for other machines.
func openPorts(manager string, c closedChain, list []opening) string {
	form := "nft insert rule " + c.name + " %[2]s dport %[1]d accept"
	switch {
	case manager == "firewalld":
		form = "firewall-cmd --permanent --add-port=%[1]d/%[2]s"
	case manager == "ufw":
		form = "ufw allow %[1]d/%[2]s"
	case c.ofIptables():
		form = c.iptables() + " -I INPUT -p %[2]s --dport %[1]d -j ACCEPT"
	}
	var commands []string
	for _, o := range list {
		commands = append(commands, fmt.Sprintf(form, o.port, o.protocol))
	}
	if manager == "firewalld" {
		commands = append(commands, "firewall-cmd --reload")
	}
	return strings.Join(commands, "; ")
}

// legacy checks the rules of the kernel's older firewall, which nftables does not show.
func (m *Machine) legacy(ctx context.Context) []Verdict {
	if !slices.Contains(strings.Fields(m.read("/proc/net/ip_tables_names")), "filter") {
		return nil
	}
	rules, err := exec.CommandContext(ctx, "iptables-legacy", "-S", "FORWARD").Output()
	if err != nil {
		return Warnf("see with iptables-legacy -S whether they drop packets of pods",
			"there are rules of iptables-legacy, which cannot be read without that program")
	}
	return judgeLegacy(string(rules), m.Config.Network.ClusterCIDRs)
}

func judgeLegacy(rules string, cidrs []netip.Prefix) (out []Verdict) {
	for _, cidr := range cidrs {
		if cidr.Addr().Is4() && strings.Contains(rules, "-P FORWARD DROP") && !strings.Contains(rules, cidr.String()) {
			c := closedChain{name: "ip filter FORWARD", forward: true}
			out = append(out, Failf(strings.ReplaceAll(letThrough("", c, cidr), "iptables ", "iptables-legacy "),
				"the firewall (FORWARD of iptables-legacy) drops what no rule accepts, which includes packets between pods, and between pods and the outside")...)
		}
	}
	return out
}

// families are the families of tables that see IP packets.
var families = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
}
