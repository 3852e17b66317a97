package supportbundle

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/network/nft"
)

// kernelFiles describe the machine, its kernel and its distribution.
var kernelFiles = []string{
	"/etc/os-release", "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf",
	"/proc/version", "/proc/cmdline", "/proc/cpuinfo", "/proc/meminfo", "/proc/loadavg", "/proc/uptime", "/proc/vmstat", "/proc/pressure/*",
	"/proc/self/mountinfo", "/proc/modules", "/proc/filesystems", "/proc/cgroups", "/sys/fs/cgroup/cgroup.controllers", "/proc/diskstats", "/proc/softirqs",
}

// sysctls are patterns below /proc/sys of settings that matter to a node.
var sysctls = []string{
	"fs/file-max", "fs/file-nr", "fs/nr_open", "fs/inotify/*", "kernel/panic*", "kernel/pid_max", "kernel/threads-max", "kernel/keys/*",
	"kernel/unprivileged_userns_clone", "kernel/dmesg_restrict", "user/max_*", "vm/overcommit_memory", "vm/panic_on_oom", "vm/swappiness",
	"vm/max_map_count", "net/core/somaxconn", "net/core/default_qdisc", "net/ipv4/ip_forward", "net/ipv4/ip_local_*", "net/ipv4/conf/*/rp_filter",
	"net/ipv4/conf/*/forwarding", "net/ipv4/conf/*/route_localnet", "net/ipv4/neigh/default/gc_thresh*", "net/ipv4/tcp_keepalive*",
	"net/ipv6/conf/*/disable_ipv6", "net/ipv6/conf/*/forwarding", "net/ipv6/conf/*/accept_ra", "net/bridge/*", "net/netfilter/nf_conntrack_max",
	"net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_buckets",
}

// Sysctls collects kernel settings as one file, as sysctl prints them.
func Sysctls(ctx context.Context, to *Files) error {
	var out bytes.Buffer
	for _, pattern := range sysctls {
		found, _ := filepath.Glob("/proc/sys/" + pattern) // the patterns are valid
		for _, path := range found {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			data, err := os.ReadFile(path)
			value := strings.TrimSpace(string(data))
			if err != nil {
				value = "(" + err.Error() + ")"
			}
			fmt.Fprintf(&out, "%s = %s\n", strings.ReplaceAll(strings.TrimPrefix(path, "/proc/sys/"), "/", "."), value)
		}
	}
	to.Add("", out.Bytes())
	return nil
}

// Clock collects the time, and whether the kernel considers the clock synchronised.
func Clock(_ context.Context, to *Files) error {
	now := time.Now()
	zone, _ := now.Zone()
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return fmt.Errorf("asking for the state of the clock: %w", err)
	}
	to.Add("", []byte(fmt.Sprintf("now %s (%s)\nsynchronised %v (adjtimex %d, status %#x)\nmaximum error %d us, estimated error %d us, frequency %d\n",
		now.Format(time.RFC3339Nano), zone, t.Status&unix.STA_UNSYNC == 0, state, t.Status, t.Maxerror, t.Esterror, t.Freq)))
	return nil
}

// Disks collects the use of the file systems of the directories.
func Disks(dirs ...string) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		var out bytes.Buffer
		fmt.Fprintf(&out, "%-40s %14s %14s %6s %12s %12s\n", "DIRECTORY", "BYTES", "FREE", "FREE", "INODES", "FREE")
		for _, dir := range dirs {
			var s unix.Statfs_t
			if err := unix.Statfs(dir, &s); err != nil {
				fmt.Fprintf(&out, "%-40s %v\n", dir, err)
				continue
			}
			size := uint64(s.Bsize)
			fmt.Fprintf(&out, "%-40s %14d %14d %5d%% %12d %12d\n", dir, s.Blocks*size, s.Bavail*size, 100*s.Bavail/max(s.Blocks, 1), s.Files, s.Ffree)
		}
		to.Add("", out.Bytes())
		return nil
	}
}

// Dmesg collects the end of the kernel's log.
func Dmesg(_ context.Context, to *Files) error {
	buf := make([]byte, 512<<10)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return fmt.Errorf("reading the kernel's log: %w", err)
	}
	to.Add("", buf[:n])
	return nil
}

// Firewall collects the rules of coracle's tables, and of other tables only the chains with their hooks and policies. ours are
// the names of coracle's tables, such as "ip kube-proxy".
func Firewall(program string, ours []string) func(context.Context, *Files) error {
	return func(ctx context.Context, to *Files) error {
		tables, err := nft.Tables()
		if err != nil {
			return err
		}
		var names bytes.Buffer
		for _, t := range tables {
			mine := slices.Contains(ours, t.Name)
			fmt.Fprintf(&names, "table %s%s\n", t.Name, map[bool]string{true: "  # coracle's, in full in its own file"}[mine])
			if !mine {
				continue
			}
			family, name, _ := strings.Cut(t.Name, " ")
			rules, err := output(ctx, nil, program, "list", "table", family, name)
			if err != nil {
				to.Note("table %s: %v", t.Name, err)
				continue
			}
			to.Add(family+"-"+name+".nft", rules)
		}
		to.Add("tables.txt", names.Bytes())
		chains, err := output(ctx, nil, program, "list", "chains")
		to.Add("chains.txt", chains)
		return err
	}
}
