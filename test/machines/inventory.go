package machines

import (
	"fmt"
	"slices"
	"strings"
)

// Inventory is the content of a machine: one line for each object, by name.
type Inventory map[string]string

// unlisted are files, and directories with their content, that belong to the kernel, the engine or the test, or that
// programs write at any time or at each boot.
var unlisted = []string{"/proc", "/sys", "/dev", "/tmp", Coracle, "/mnt/images", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf",
	"/run/cgroups", "/run/initctl", "/run/log", "/run/dbus", "/run/openrc", "/run/shm", "/run/systemd", "/run/udev", "/run/utmp",
	"/var/lib/systemd/random-seed", "/var/lib/systemd/timers", "/var/log/journal", "/var/log/wtmp"}

// Files lists all files of the machine with type, mode, owner, size, time of change and the target of links;
// directories with type, mode and owner.
func (m *Machine) Files() Inventory {
	m.t.Helper()
	args := []string{"/", "("}
	for i, dir := range unlisted {
		if i > 0 {
			args = append(args, "-o")
		}
		args = append(args, "-path", dir)
	}
	args = append(args, ")", "-prune", "-o", "-type", "d", "-printf", "%p\t%y %m %U:%G\n", "-o", "-printf", "%p\t%y %m %U:%G %s %t %l\n")
	return Parse(m.Run("find", args...))
}

// Kernel lists the machine's objects in the kernel: links, routes, mounts, cgroups except those of systemd's units,
// network namespaces, and the sysctls that Kubernetes sets.
func (m *Machine) Kernel() Inventory {
	m.t.Helper()
	return Parse(m.Sh(`
ip -o link | awk '{ sub("@.*", "", $2); print "link " $2 "\t" $3 }'
ip route show table all | sort -u | awk '{ print "route " $0 "\t" }'
ip -6 route show table all | sort -u | awk '{ print "route6 " $0 "\t" }'
awk '{ print "mount " $5 "\t" }' /proc/self/mountinfo
find /sys/fs/cgroup -type d -not -path '*.service*' -not -path '*.scope*' -not -path '*.slice*' -not -path '*.mount*' -printf 'cgroup %p\t\n'
ls /run/netns 2>/dev/null | awk '{ print "netns " $0 "\t" }'
for f in /proc/sys/net/ipv4/ip_forward /proc/sys/net/bridge/bridge-nf-call-iptables /proc/sys/vm/overcommit_memory \
	/proc/sys/kernel/panic /proc/sys/kernel/panic_on_oops /proc/sys/net/ipv6/conf/all/forwarding; do
	[ ! -e $f ] || printf 'sysctl %s\t%s\n' $f "$(cat $f)"
done
`))
}

// Processes lists the running programs, each once, except those that list them.
func (m *Machine) Processes() Inventory {
	m.t.Helper()
	return Parse(m.Sh(`for p in /proc/[0-9]*; do
	cat $p/comm 2>/dev/null || true
done | grep -vxE 'sh|cat|sort|grep|awk|sleep|runc.*' | sort -u | awk '{ print "process " $0 "\t" }'`))
}

// Firewall is the text of all rules of the machine, as nft and both iptables print them, without counters.
func (m *Machine) Firewall() string {
	m.t.Helper()
	return m.Sh(`nft -s list ruleset; for x in iptables-save ip6iptables-save ip6tables-save; do
	! command -v $x >/dev/null || $x 2>/dev/null | grep -v '^#' | sed 's/\[[0-9]*:[0-9]*\]/[0:0]/'
done`)
}

// Parse reads lines of a name, a tab and a value.
func Parse(text string) Inventory {
	inv := Inventory{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		inv[name] = rest
	}
	return inv
}

// Diff returns the lines that are only in after with a +, those that are only in before with a -, and changed ones with
// both values; sorted.
func Diff(before, after Inventory) (lines []string) {
	for name, now := range after {
		was, ok := before[name]
		switch {
		case !ok:
			lines = append(lines, "+ "+name)
		case was != now:
			lines = append(lines, fmt.Sprintf("~ %s: %s -> %s", name, was, now))
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			lines = append(lines, "- "+name)
		}
	}
	slices.Sort(lines)
	return lines
}
