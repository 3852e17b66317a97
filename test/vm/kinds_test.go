package vm

import "fmt"

// kind is a kind of machine: a row of the table.
type kind struct {
	name, what  string // of the test, and for people
	suite, arch string
	packages    string // more of Debian's packages
	opts        Options
	prepare     string            // a script that changes the machine before the installation
	again       bool              // what was prepared needs another boot
	has         map[string]string // scripts with what they print on a machine that is what it is called, at each boot in order
	server      []string          // arguments for coracle server
	binDir      string            // of the executable, if it is not the usual one
	engine      string            // of the container that coracle runs in, if it does
	quotas      bool              // volumes cannot become larger than they may
	steps       func() []step     // nil for the usual ones
	skip        map[string]string // steps that are not tried on this machine, with the reason
	cuts        int               // of power, 0 is one
	known       map[string]string // steps that fail, with what is known of it
}

// dataIs prints the file system of coracle's data.
const dataIs = "stat -f -c %T /var/lib/coracle | sed s/ext2.ext3/ext4/"

// second is a script that gives coracle a disk of its own, made with the given command and mounted with the given options.
func second(make, fs, options string) string {
	return fmt.Sprintf(`%s /dev/vdb
mkdir -p /var/lib/coracle
echo '/dev/vdb /var/lib/coracle %s %s 0 0' >>/etc/fstab
systemctl daemon-reload
mount /var/lib/coracle`, make, fs, options)
}

// inContainer runs coracle in a container of the engine, the machine's only one: where Docker's daemon runs, its rules drop what comes in for the ports that podman publishes.
func inContainer(engine, packages string) func(*kind) {
	return func(k *kind) {
		k.steps, k.engine, k.packages = containerSteps, engine, packages
	}
}

// all are the steps that are tried on the kind of machine.
func (k kind) all() []step {
	if k.steps != nil {
		return k.steps()
	}
	return steps()
}

// kinds are the machines on which all steps are tried, unless the row says otherwise. Debian loads none of the modules that coracle needs at its boot.
// A boot takes long where the processor is emulated, so most rows combine properties that have nothing to do with each other.
func kinds() []kind {
	debian12 := func(name, what string) kind {
		return kind{name: name, what: what, suite: "bookworm", arch: "amd64", opts: Options{Memory: 2048}, known: map[string]string{
			"memory limit": "the kernel ended the right container, but its reason was `Error`, see below",
		}}
	}
	// The sentences of known are also for reports of earlier commits, until the machine is seen again.
	before := map[string]string{"uninstall": "at this commit `/etc/systemd/logind.conf.d/99-kubelet.conf` and the AppArmor profile `cri-containerd.apparmor.d` were left; " +
		"later commits leave nothing on Debian 12 without overlay and on Debian 13"}
	with := func(k kind, change func(*kind)) kind {
		change(&k)
		return k
	}
	return []kind{
		with(debian12("debian12", "Debian 12: cgroup v2, AppArmor"), func(k *kind) { k.known = before }),
		with(debian12("debian13", "Debian 13: cgroup v2, AppArmor, one processor"), func(k *kind) { k.suite, k.opts.CPUs = "trixie", 1 }),
		with(debian12("cgroup1", "Debian 12 with cgroup v1"), func(k *kind) { k.opts.Append, k.known = "systemd.unified_cgroup_hierarchy=0", before }),
		with(debian12("xfs-swap-no-ipv6", "Debian 12: xfs with project quotas, swap, no IPv6"), func(k *kind) {
			k.opts.Append, k.opts.Disk, k.quotas, k.cuts = "ipv6.disable=1", 4, true, 11
			k.prepare = second("mkfs.xfs -q", "xfs", "prjquota") + `
fallocate -l 512M /swap; chmod 600 /swap; mkswap -q /swap; echo '/swap none swap sw 0 0' >>/etc/fstab; systemctl daemon-reload; swapon -a`
			k.has = map[string]string{dataIs: "xfs", "swapon --noheadings --show=NAME": "/swap", "ls /proc/net/if_inet6 2>/dev/null | wc -l": "0"}
		}),
		with(debian12("ext4-1gb-no-apparmor", "Debian 12: ext4 with project quotas, 1 GB of memory, no AppArmor"), func(k *kind) {
			k.opts.Append, k.opts.Disk, k.opts.Memory, k.quotas = "apparmor=0", 4, 1024, true
			k.prepare = second("mkfs.ext4 -q -O quota,project -E quotatype=prjquota", "ext4", "prjquota")
			k.has = map[string]string{dataIs: "ext4", "cat /sys/module/apparmor/parameters/enabled": "N", "[ $(awk '/MemTotal/ { print $2 }' /proc/meminfo) -lt 1048576 ] && echo less": "less"}
		}),
		with(debian12("btrfs-usr-read-only-no-br-netfilter", "Debian 12: btrfs, read-only /usr, a module br_netfilter that cannot be loaded"), func(k *kind) {
			k.opts.Disk, k.binDir = 4, "/opt/bin"
			k.skip = map[string]string{between: "without br_netfilter no filter sees what pods of one node send to each other; `coracle status` says so"}
			k.prepare = second("mkfs.btrfs -q", "btrfs", "defaults") + `
echo 'install br_netfilter /bin/false' >/etc/modprobe.d/none.conf
# A line in fstab would be read by the initrd too, for which /usr is a device.
printf '[Unit]\nDefaultDependencies=no\nAfter=systemd-remount-fs.service\nBefore=local-fs.target\n[Service]\nType=oneshot\nRemainAfterExit=yes
ExecStart=/bin/sh -c "mount --bind /usr /usr && mount -o remount,bind,ro /usr"\n[Install]\nWantedBy=local-fs.target\n' >/etc/systemd/system/read-only-usr.service
systemctl daemon-reload; systemctl -q enable --now read-only-usr.service`
			k.has = map[string]string{dataIs: "btrfs", "touch /usr/new 2>/dev/null || echo read-only": "read-only", "modprobe br_netfilter 2>/dev/null || echo refused": "refused"}
		}),
		with(debian12("no-overlay", "Debian 12 whose module overlay cannot be loaded"), func(k *kind) {
			k.prepare = `echo 'install overlay /bin/false' >/etc/modprobe.d/none.conf`
			k.has = map[string]string{"grep -c overlay /proc/filesystems || modprobe overlay 2>/dev/null || echo refused": "0\nrefused"}
		}),
		with(debian12("512mb", "Debian 12 with 512 MB of memory"), func(k *kind) { k.opts.Memory = 512 }),
		with(debian12("selinux", "Debian 12, SELinux enforcing with Debian's policy"), func(k *kind) {
			k.packages = "selinux-basics selinux-policy-default auditd"
			k.opts.Append = "security=selinux selinux=1"
			// The first boot is permissive, and its programs run in the kernel's domain, since no file has a label.
			k.prepare, k.again = `restorecon -R / 2>/dev/null || true; sed -i 's/^SELINUX=.*/SELINUX=enforcing/' /etc/selinux/config`, true
			k.has = map[string]string{"getenforce": "Enforcing"}
		}),
		with(debian12("arm64", "Debian 12, arm64"), func(k *kind) { k.arch = "arm64" }),
		with(debian12("wireguard", "Debian 12, two nodes with `wireguard-native`"), func(k *kind) { k.steps = wireGuardSteps }),
		with(debian12("tpm", "Debian 12 with a TPM 2.0, which seals the passphrase of Secrets"), func(k *kind) {
			k.packages, k.opts.TPM, k.steps = "tpm2-tools", "own", tpmSteps
			k.has = map[string]string{"test -c /dev/tpmrm0 && echo there": "there"}
		}),
		with(debian12("nodes", "Debian 13: cgroup v2, swap, Debian's crun and CRIU; what pods may use"), func(k *kind) {
			k.suite, k.packages, k.steps = "trixie", "crun criu iptables", nodeSteps
			k.prepare = "fallocate -l 2G /swap; chmod 600 /swap; mkswap -q /swap; echo '/swap none swap sw 0 0' >>/etc/fstab; systemctl daemon-reload; swapon -a"
			k.has = map[string]string{"swapon --noheadings --show=NAME": "/swap", "stat -f -c %T /sys/fs/cgroup": "cgroup2fs", "for p in crun criu; do command -v $p; done": "/usr/bin/crun\n/usr/sbin/criu"}
		}),
		with(debian12("docker", "Debian 12, in a container of its Docker"), inContainer("docker", "docker.io")),
		with(debian12("podman", "Debian 12, in a container of its podman"), inContainer("podman", "podman crun netavark iptables")),
	}
}
