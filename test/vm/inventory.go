package vm

import "github.com/coracle-dev/coracle/test/machines"

// Inventory lists what is on the machine and in its kernel: files with type, mode, owner and size, links, routes, mounts, cgroups, network
// namespaces, units of systemd, sysctls that Kubernetes sets, programs, AppArmor's profiles, modules, and how long logind lets others delay a shutdown.
// What the system itself writes or starts at any time, such as the login at a slow machine's console, is not in it.
func (m *Machine) Inventory() machines.Inventory {
	m.t.Helper()
	return machines.Parse(m.Sh(inventory))
}

const inventory = `
find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /mnt -o -path /root/.kube -o -path /var/log/journal \
	-o -path /var/lib/systemd -o -path /var/log/wtmp -o -path /var/log/lastlog -o -path /var/log/btmp -o -path /var/lib/private -o -path '/var/tmp/systemd-private-*' \) -prune \
	-o -type d -printf '%p\t%y %m %U:%G\n' -o -printf '%p\t%y %m %U:%G %s %l\n'
[ ! -d /var/lib/coracle ] || find /var/lib/coracle -xdev -printf '%p\t%y %m %U:%G\n'
find /run -xdev \( -path /run/log -o -path /run/udev -o -path /run/systemd -o -path /run/user -o -path /run/utmp \) -prune -o -printf '%p\t%y %m %U:%G\n'
ip -o link | awk '{ sub("@.*", "", $2); print "link " $2 "\t" $3 }'
ip route show table all | sed 's/ expires [0-9]*sec//' | awk '{ print "route " $0 "\t" }'
ip -6 route show table all | sed 's/ expires [0-9]*sec//' | awk '{ print "route6 " $0 "\t" }'
awk '{ print "mount " $5 "\t" }' /proc/self/mountinfo
find /sys/fs/cgroup -type d | grep -v -e user.slice -e session -e init.scope -e systemd- -e user@ -e /dev- -e getty | sed 's/$/\t/; s/^/cgroup /' || true
ls /run/netns 2>/dev/null | awk '{ print "netns " $0 "\t" }'
systemctl list-units --all --no-legend --plain | awk '{ print "unit " $1 "\t" $2 " " $3 }' | grep -v -E 'session-|user-|user@|serial-getty@|\.device|unit systemd-|unit dev-' || true
for f in net/ipv4/ip_forward net/bridge/bridge-nf-call-iptables vm/overcommit_memory kernel/panic kernel/panic_on_oops net/ipv6/conf/all/forwarding \
	net/ipv4/conf/all/route_localnet fs/inotify/max_user_instances fs/inotify/max_user_watches kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	[ ! -e /proc/sys/$f ] || printf 'sysctl %s\t%s\n' $f "$(cat /proc/sys/$f)"
done
for p in /proc/[0-9]*; do cat $p/comm 2>/dev/null || true; done | grep -vxE 'sh|cat|sort|grep|awk|sed|kworker.*|ssh.*|systemd-.*|\(sd-pam\)|bash|jbd2.*|xfs.*|btrfs.*' | sort -u |
	awk '{ print "process " $0 "\t" }'
cat /sys/kernel/security/apparmor/profiles 2>/dev/null | awk '{ print "apparmor " $1 "\t" $2 }' || true
awk '{ print "module " $1 "\t" }' /proc/modules
echo "logind\t$(busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec)"
`
