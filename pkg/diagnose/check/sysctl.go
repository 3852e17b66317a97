package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// settings are limits of the kernel that coracle raises when it starts, if it is permitted to.
var settings = []struct {
	file  string
	least int64
}{
	{"fs/inotify/max_user_instances", 1024},
	{"fs/inotify/max_user_watches", 65536},
	{"net/netfilter/nf_conntrack_max", 65536},
}

func sysctls(_ context.Context, m *Machine) []Verdict {
	var out []Verdict
	for _, s := range settings {
		file := "/proc/sys/" + s.file
		have, err := strconv.ParseInt(m.read(file), 10, 64)
		if err != nil || have >= s.least || m.mayWrite(file) {
			continue
		}
		name := strings.ReplaceAll(s.file, "/", ".")
		out = append(out, Warnf(fmt.Sprintf("on the host: sysctl -w %s=%d", name, s.least*8),
			"%s is %d, which is low, and coracle is not permitted to raise it here", name, have)...)
	}
	return Else(out, Okf("high enough, or coracle raises them when it starts"))
}

// kernelDefaults compares the settings for which the kubelet refuses to start in the CIS profile. Those that a kubelet without the profile has set
// are gone after a reboot, when nothing sets them any more.
func kernelDefaults(_ context.Context, m *Machine) []Verdict {
	if !m.Config.Security.CIS() {
		return Okf("the kubelet sets them")
	}
	var wrong, passing, lines []string
	kept := m.sysctlFiles()
	for _, s := range config.KernelSettings() {
		lines = append(lines, s.Name+"="+s.Value)
		file := "/proc/sys/" + strings.ReplaceAll(s.Name, ".", "/")
		switch have := m.read(file); {
		case have == "":
			wrong = append(wrong, fmt.Sprintf("%s is missing, not %s", s.Name, s.Value))
		case have != s.Value:
			wrong = append(wrong, fmt.Sprintf("%s is %s, not %s", s.Name, have, s.Value))
		case !slices.Contains(kept, s.Name+"="+s.Value) && m.mayWrite(file): // else, as in a container, it is the host's
			passing = append(passing, s.Name)
		}
	}
	fix := fmt.Sprintf("printf '%s\\n' | sudo tee /etc/sysctl.d/90-coracle.conf, then sudo sysctl --system", strings.Join(lines, "\\n"))
	switch {
	case len(wrong) > 0:
		return Failf(fix, "with --profile=cis coracle does not change these: %s", strings.Join(wrong, ", "))
	case len(passing) > 0:
		return Warnf(fix, "the values are right until the next reboot, after which coracle with --profile=cis may refuse to start: no file in %s sets %s",
			strings.Join(sysctlPatterns(), ", "), strings.Join(passing, ", "))
	}
	return Okf("as --profile=cis needs them")
}

// sysctlPatterns match the files whose settings the kernel gets at boot.
func sysctlPatterns() []string {
	return []string{"/etc/sysctl.d/*.conf", "/run/sysctl.d/*.conf", "/usr/lib/sysctl.d/*.conf", "/etc/sysctl.conf"}
}

// sysctlFiles returns the settings in these files as NAME=VALUE.
func (m *Machine) sysctlFiles() (lines []string) {
	for _, pattern := range sysctlPatterns() {
		files, _ := filepath.Glob(m.path(pattern)) // the pattern is valid
		for _, file := range files {
			text, _ := os.ReadFile(file) // what cannot be read sets nothing
			for line := range strings.Lines(string(text)) {
				name, value, _ := strings.Cut(strings.TrimLeft(strings.TrimSpace(line), "-"), "=")
				lines = append(lines, strings.ReplaceAll(strings.TrimSpace(name), "/", ".")+"="+strings.TrimSpace(value))
			}
		}
	}
	return lines
}

// mayWrite reports whether coracle could write a kernel setting. It writes nothing.
func (m *Machine) mayWrite(name string) bool {
	err := openToWrite(m.path(name))
	if errors.Is(err, unix.EROFS) && m.Root == "" {
		err = m.writable("/proc/sys", func() error { return openToWrite(name) })
	}
	return err == nil
}

func openToWrite(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func forwarding(_ context.Context, m *Machine) []Verdict {
	var out []Verdict
	files := map[bool]string{false: "/proc/sys/net/ipv4/ip_forward", true: "/proc/sys/net/ipv6/conf/all/forwarding"}
	var on []string
	for _, cidr := range m.Config.Network.ClusterCIDRs {
		v6 := cidr.Addr().Is6()
		file, family := files[v6], map[bool]string{false: "IPv4", true: "IPv6"}[v6]
		switch have := m.read(file); {
		case have == "":
			out = append(out, Failf("boot without ipv6.disable=1, or leave the other family out of --cluster-cidr",
				"the machine has no %s, and pods need addresses of it", family)...)
		case v6 && m.read("/proc/sys/net/ipv6/conf/all/disable_ipv6") == "1" && !m.mayWrite("/proc/sys/net/ipv6/conf/all/disable_ipv6"):
			out = append(out, Failf("sysctl -w net.ipv6.conf.all.disable_ipv6=0", "IPv6 is disabled, and pods need addresses of it")...)
		case have == "1":
			on = append(on, family+" is on")
		case !m.mayWrite(file):
			out = append(out, Failf("on the host: sysctl -w "+strings.ReplaceAll(strings.TrimPrefix(file, "/proc/sys/"), "/", ".")+"=1",
				"forwarding of %s is off, and coracle is not permitted to enable it here", family)...)
		case m.Running:
			out = append(out, Failf("find the program that disabled it, and restart coracle, which enables it",
				"forwarding of %s is off although coracle runs: pods cannot reach other machines", family)...)
		default:
			on = append(on, family+" is off; coracle enables it when it starts")
		}
	}
	return Else(out, Okf("%s", strings.Join(on, ", ")))
}

// reversePath looks for strict reverse path filters on a machine with several default routes, where answers may come in by
// another interface than the one that requests leave by.
func reversePath(_ context.Context, m *Machine) []Verdict {
	routes, err := netlink.RouteList(nil, unix.AF_INET)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return Skipf("the routes cannot be read: %v", err)
	}
	ways := map[int]bool{}
	for _, r := range routes {
		if r.Dst == nil || r.Dst.IP.IsUnspecified() {
			ways[r.LinkIndex] = true
		}
	}
	return judgeReversePath(m.read("/proc/sys/net/ipv4/conf/all/rp_filter"), len(ways))
}

func judgeReversePath(all string, ways int) []Verdict {
	if all == "1" && ways > 1 {
		return Warnf("sysctl -w net.ipv4.conf.all.rp_filter=2",
			"the kernel drops packets that come in by another interface than their answer would leave by (rp_filter=1), and there are %d default routes", ways)
	}
	return Okf("rp_filter is %s, with %d default routes", map[string]string{"0": "off", "1": "strict", "2": "loose"}[all], ways)
}
