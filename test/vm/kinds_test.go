package vm

import "fmt"

// kind is a kind of machine: a row of the table.
type kind struct {
	name, what  string // of the test, and for people
	suite, arch string
	packages    string // more of Debian's packages
	opts        Options
	prepare     string            // a script that changes the machine before the installation
	server      []string          // arguments for coracle server
	binDir      string            // of the executable, if it is not the usual one
	engine      string            // of the container that coracle runs in, if it does
	quotas      bool              // volumes cannot become larger than they may
	steps       func() []step     // nil for the usual ones
	skip        map[string]string // steps that are not tried on this machine, with the reason
	known       map[string]string // steps that fail, with what is known of it
}

// second is a script that gives coracle a disk of its own, made with the given command and mounted with the given options.
func second(make, fs, options string) string {
	return fmt.Sprintf(`%s /dev/vdb
mkdir -p /var/lib/coracle
echo '/dev/vdb /var/lib/coracle %s %s 0 0' >>/etc/fstab
systemctl daemon-reload
mount /var/lib/coracle`, make, fs, options)
}

// inContainer runs coracle in a container of the engine, of those that the machine has.
func inContainer(engine string) func(*kind) {
	return func(k *kind) {
		k.steps, k.engine, k.packages = containerSteps, engine, "docker.io podman crun netavark iptables"
		k.known = map[string]string{"network": "names and Services answer inside; connections from the machine to the NodePort at the container's address fail. The app's own policy, which lets only its client in, would refuse them, as they come from outside of the node; whether that is all was not tried"}
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
func kinds() []kind {
	debian12 := func(name, what string) kind {
		return kind{name: name, what: what, suite: "bookworm", arch: "amd64", opts: Options{Memory: 2048}, known: map[string]string{
			"memory limit": "the kernel ended the right container, but its reason was `Error`, see below",
			"uninstall": "what is left is `/etc/systemd/logind.conf.d/99-kubelet.conf`, with which logind delays a shutdown for 30 s, " +
				"and the AppArmor profile `cri-containerd.apparmor.d`",
		}}
	}
	with := func(k kind, change func(*kind)) kind {
		change(&k)
		return k
	}
	return []kind{
		debian12("debian12", "Debian 12: cgroup v2, AppArmor"),
		with(debian12("debian13", "Debian 13: cgroup v2, AppArmor"), func(k *kind) { k.suite = "trixie" }),
		with(debian12("cgroup1", "Debian 12 with cgroup v1"), func(k *kind) { k.opts.Append = "systemd.unified_cgroup_hierarchy=0" }),
		with(debian12("no-apparmor", "Debian 12 without AppArmor"), func(k *kind) { k.opts.Append = "apparmor=0" }),
		with(debian12("no-ipv6", "Debian 12 without IPv6"), func(k *kind) { k.opts.Append = "ipv6.disable=1" }),
		with(debian12("swap", "Debian 12 with swap"), func(k *kind) {
			k.prepare = `fallocate -l 512M /swap; chmod 600 /swap; mkswap -q /swap; echo '/swap none swap sw 0 0' >>/etc/fstab; systemctl daemon-reload; swapon -a`
		}),
		with(debian12("1gb", "Debian 12 with 1 GB of memory"), func(k *kind) { k.opts.Memory = 1024 }),
		with(debian12("512mb", "Debian 12 with 512 MB of memory"), func(k *kind) { k.opts.Memory = 512 }),
		with(debian12("usr-read-only", "Debian 12 with a read-only /usr"), func(k *kind) {
			k.binDir = "/opt/bin"
			k.prepare = `echo '/usr /usr none bind,ro 0 0' >>/etc/fstab; systemctl daemon-reload; mount --bind /usr /usr; mount -o remount,bind,ro /usr`
		}),
		with(debian12("no-br-netfilter", "Debian 12 whose module br_netfilter cannot be loaded"), func(k *kind) {
			k.prepare = `echo 'install br_netfilter /bin/false' >/etc/modprobe.d/none.conf`
		}),
		with(debian12("no-overlay", "Debian 12 whose module overlay cannot be loaded"), func(k *kind) {
			k.prepare = `echo 'install overlay /bin/false' >/etc/modprobe.d/none.conf`
		}),
		with(debian12("ext4-prjquota", "Debian 12, ext4 with project quotas"), func(k *kind) {
			k.opts.Disk, k.quotas, k.prepare = 4, true, second("mkfs.ext4 -q -O quota,project -E quotatype=prjquota", "ext4", "prjquota")
		}),
		with(debian12("xfs", "Debian 12, xfs with project quotas"), func(k *kind) {
			k.opts.Disk, k.quotas, k.prepare = 4, true, second("mkfs.xfs -q", "xfs", "prjquota")
		}),
		with(debian12("btrfs", "Debian 12, btrfs"), func(k *kind) {
			k.opts.Disk, k.prepare = 4, second("mkfs.btrfs -q", "btrfs", "defaults")
		}),
		with(debian12("wireguard", "Debian 12, two nodes with `wireguard-native`"), func(k *kind) { k.steps = wireGuardSteps }),
		with(debian12("docker", "Debian 12, in a container of its Docker"), inContainer("docker")),
		with(debian12("podman", "Debian 12, in a container of its podman"), inContainer("podman")),
		with(debian12("selinux", "Debian 12, SELinux enforcing with Debian's policy"), func(k *kind) {
			k.packages = "selinux-basics selinux-policy-default auditd"
			k.opts.Append = "security=selinux selinux=1"
			k.prepare = `restorecon -R / 2>/dev/null || true; sed -i 's/^SELINUX=.*/SELINUX=enforcing/' /etc/selinux/config; setenforce 1; getenforce | grep Enforcing`
		}),
	}
}
