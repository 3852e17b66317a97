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

// closed is a chain of the machine's firewall that drops or rejects what it does not know.
type closed struct {
	name    string // FAMILY TABLE CHAIN
	forward bool   // for what passes through; else for what comes to the machine
	v6      bool   // it sees IPv6
	v4      bool   // it sees IPv4
	policy  bool   // it is its policy that drops, not a rule
	// knows reports whether a rule that lets something pass has these bytes: a network, a port, an interface's name.
	knows func(data []byte) bool
}

func firewall(ctx context.Context, m *Machine) []Verdict {
	if m.Config.Network.Backend == config.BackendNone {
		return Skipf("what has to pass depends on the other plugin for the pod network")
	}
	chains, err := closedChains()
	if err != nil {
		return Skipf("the rules cannot be read: %v", err)
	}
	out := append(judgeFirewall(m.Config, m.firewallKeeper(), chains), m.legacy(ctx)...)
	return Else(out, Okf("no rule of others drops what it does not know"))
}

// firewallKeeper returns the program that manages the machine's firewall, "" if none is known.
func (m *Machine) firewallKeeper() string {
	switch {
	case slices.ContainsFunc(m.processes(), func(p process.Process) bool { return p.Name == "firewalld" }):
		return "firewalld"
	case strings.Contains(m.read("/etc/ufw/ufw.conf"), "ENABLED=yes"):
		return "ufw"
	}
	return ""
}

// opening is something that others have to reach on this machine.
type opening struct {
	port     uint16
	protocol string
	use      string
}

// openings are the ports that other machines come to.
func openings(cfg config.Config) []opening {
	list := []opening{{10250, "tcp", "the kubelet"}}
	if cfg.Role == config.Server {
		list = append(list, opening{cfg.API.Port, "tcp", "the API"})
		if (cfg.Join.Server != "" || cfg.Join.Joined) && !cfg.Datastore.External() {
			list = append(list, opening{2380, "tcp", "etcd"})
		}
	}
	if cfg.Network.Backend == config.VXLAN {
		list = append(list, opening{8472, "udp", "packets of pods"})
	}
	return list
}

// judgeFirewall says of each closed chain what it would drop. Another table's accept does not help: a drop anywhere wins.
func judgeFirewall(cfg config.Config, keeper string, chains []closed) (out []Verdict) {
	for _, c := range chains {
		for _, cidr := range cfg.Network.ClusterCIDRs {
			if cidr.Addr().Is6() && !c.v6 || cidr.Addr().Is4() && !c.v4 || c.knows([]byte(footprint.Bridge)) || c.knowsNetwork(cidr) {
				continue
			}
			if c.forward && c.policy {
				out = append(out, Okf("the firewall (%s) drops what it is not told to forward; coracle adds rules there that let %s through", c.name, cidr)...)
				continue
			}
			what := "what pods say to the machine, as their questions to DNS"
			if c.forward {
				what = "what pods say to each other and to the outside"
			}
			out = append(out, Failf(letThrough(keeper, c, cidr), "the firewall (%s) drops what it does not know, and so %s", c.name, what)...)
		}
		if c.forward {
			continue
		}
		var missing []string
		for _, o := range openings(cfg) {
			if !c.knows([]byte{byte(o.port >> 8), byte(o.port)}) {
				missing = append(missing, fmt.Sprintf("%d/%s (%s)", o.port, o.protocol, o.use))
			}
		}
		if missing != nil {
			out = append(out, Warnf(openPorts(keeper, openings(cfg)), "the firewall (%s) lets no other machine in to %s, which they need", c.name, strings.Join(missing, ", "))...)
		}
	}
	return out
}

// knowsNetwork looks for the bytes of a network, as rules have them: the whole address, or as many as the mask covers.
func (c closed) knowsNetwork(cidr netip.Prefix) bool {
	all := cidr.Masked().Addr().AsSlice()
	return c.knows(all) || c.knows(all[:(cidr.Bits()+7)/8])
}

// letThrough are commands that let packets of a network pass.
func letThrough(keeper string, c closed, cidr netip.Prefix) string {
	switch {
	case keeper == "firewalld":
		return fmt.Sprintf("firewall-cmd --permanent --zone=trusted --add-source=%s && firewall-cmd --reload", cidr)
	case keeper == "ufw" && c.forward:
		return fmt.Sprintf("ufw route allow from %s && ufw route allow to %s", cidr, cidr)
	case keeper == "ufw":
		return fmt.Sprintf("ufw allow from %s", cidr)
	}
	tool := "iptables"
	if cidr.Addr().Is6() {
		tool = "ip6tables"
	}
	if f := strings.Fields(c.name); len(f) == 3 && f[1] != "filter" { // not a chain that iptables knows
		chain := "nft insert rule " + c.name
		family := map[bool]string{false: "ip", true: "ip6"}[cidr.Addr().Is6()]
		if !c.forward {
			return fmt.Sprintf("%s %s saddr %s accept", chain, family, cidr)
		}
		return fmt.Sprintf("%s %s saddr %s accept; %s %s daddr %s accept", chain, family, cidr, chain, family, cidr)
	}
	if !c.forward {
		return fmt.Sprintf("%s -I INPUT -s %s -j ACCEPT", tool, cidr)
	}
	return fmt.Sprintf("%[1]s -I FORWARD -s %[2]s -j ACCEPT; %[1]s -I FORWARD -d %[2]s -j ACCEPT", tool, cidr)
}

// openPorts are commands that let others in.
func openPorts(keeper string, list []opening) string {
	forms := map[string]string{
		"firewalld": "firewall-cmd --permanent --add-port=%[1]d/%[2]s", "ufw": "ufw allow %[1]d/%[2]s",
		"": "iptables -I INPUT -p %[2]s --dport %[1]d -j ACCEPT",
	}
	var commands []string
	for _, o := range list {
		commands = append(commands, fmt.Sprintf(forms[keeper], o.port, o.protocol))
	}
	if keeper == "firewalld" {
		commands = append(commands, "firewall-cmd --reload")
	}
	return strings.Join(commands, "; ")
}

// legacy looks at rules of the kernel's older firewall, which nftables does not show.
func (m *Machine) legacy(ctx context.Context) []Verdict {
	if !slices.Contains(strings.Fields(m.read("/proc/net/ip_tables_names")), "filter") {
		return nil
	}
	rules, err := exec.CommandContext(ctx, "iptables-legacy", "-S", "FORWARD").Output()
	if err != nil {
		return Warnf("see with iptables-legacy -S whether they drop packets of pods",
			"there are rules of iptables-legacy, which cannot be looked at without that program")
	}
	return judgeLegacy(string(rules), m.Config.Network.ClusterCIDRs)
}

func judgeLegacy(rules string, cidrs []netip.Prefix) (out []Verdict) {
	for _, cidr := range cidrs {
		if cidr.Addr().Is4() && strings.Contains(rules, "-P FORWARD DROP") && !strings.Contains(rules, cidr.String()) {
			c := closed{name: "ip filter FORWARD", forward: true}
			out = append(out, Failf(strings.ReplaceAll(letThrough("", c, cidr), "iptables ", "iptables-legacy "),
				"the firewall (FORWARD of iptables-legacy) drops what it does not know, and so what pods say to each other and to the outside")...)
		}
	}
	return out
}

// families are those that see packets of IP.
var families = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
}
