package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func namespaces(_ context.Context, m *Machine) []Verdict {
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	if err := inNamespaces(all, func() error { return nil }); err != nil {
		return noNamespaces(err)
	}
	// The kernel makes the namespace before it looks for the program, which is not there.
	_, err := os.StartProcess(filepath.Join(m.path("/proc"), "no-such-program"), []string{"x"},
		&os.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return Warnf("sysctl -w user.max_user_namespaces=65536; pods with hostUsers: false need it, others do not",
			"there are no user namespaces: %v", err)
	}
	return Okf("mount, UTS, IPC, PID, network and user namespaces")
}

// wanted are the modules that the kernel loads when a node needs them.
var wanted = []string{"overlay", "bridge", "br_netfilter", "veth", "vxlan", "nf_tables", "nf_conntrack", "nf_nat", "nft_masq", "nft_fib"}

// modules checks that the modules are loaded or can be loaded. A running kernel whose files were replaced by an upgrade cannot
// load modules any more.
func modules(_ context.Context, m *Machine) []Verdict {
	dir := modulesDir()
	if !m.exists(dir) {
		if m.read("/proc/modules") != "" {
			return Warnf("reboot, if the kernel was upgraded; in a container, mount the host's /lib/modules (-v /lib/modules:/lib/modules:ro)",
				"there is no %s: the running kernel cannot load modules", dir)
		}
		return Okf("the kernel has no loadable modules")
	}
	var missing []string
	for _, name := range wanted {
		if !m.hasModule(name) {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return Warnf("install the package with the kernel's other modules (as linux-modules-extra, kernel-modules-extra)",
			"the kernel has no modules %s; other checks report whether a node needs them", strings.Join(missing, ", "))
	}
	return Okf("all that are needed are loaded, built in, or in %s", dir)
}

// release returns the version of the running kernel.
func release() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // it cannot fail
	return unix.ByteSliceToString(u.Release[:])
}

// modulesDir is the directory with the modules of the running kernel.
func modulesDir() string { return "/lib/modules/" + release() }

// hasModule reports whether a module is loaded, built in or loadable. The lists of the last two have lines like
// PATH/NAME.ko, perhaps with more at the end. The kernel makes no difference between - and _ in names.
func (m *Machine) hasModule(name string) bool {
	lists := m.read(modulesDir()+"/modules.builtin") + m.read(modulesDir()+"/modules.dep")
	return m.exists("/sys/module/"+name) || strings.Contains(strings.ReplaceAll(lists, "-", "_"), "/"+name+".ko")
}

// deviceRules checks that the devices of pods can be restricted: by a controller, or in cgroup v2 by a BPF program.
func deviceRules(_ context.Context, m *Machine) []Verdict {
	if !m.exists("/sys/fs/cgroup/cgroup.controllers") {
		if strings.Contains(m.read("/proc/self/mounts"), "devices") {
			return Okf("the controller of cgroup v1")
		}
		return Warnf("add it to the kernel's command line (cgroup_enable=devices)", "the controller devices is not mounted")
	}
	if err := loadDeviceProgram(); err != nil {
		return Failf("use a kernel with CONFIG_CGROUP_BPF; in a container, start it with --privileged, or add CAP_BPF",
			"the kernel takes no BPF programs for devices, and runc needs one for each pod: %v", err)
	}
	return Okf("the kernel takes BPF programs for them")
}

// loadDeviceProgram loads the program "return 1" and unloads it.
func loadDeviceProgram() error {
	const loadProgram, cgroupDevice = 5, 15 // of linux/bpf.h
	attributes := struct {
		kind, length  uint32
		code, licence unsafe.Pointer // both architectures have 8 bytes for it
		_             [96]byte
	}{cgroupDevice, 2, unsafe.Pointer(&[16]byte{0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95}), unsafe.Pointer(&[4]byte{'G', 'P', 'L'}), [96]byte{}}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, loadProgram, uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
	if errno != 0 {
		return fmt.Errorf("loading a program: %w", errno)
	}
	return unix.Close(int(fd))
}

func securityModules(_ context.Context, m *Machine) []Verdict {
	var out []Verdict
	if m.read("/sys/fs/selinux/enforce") == "1" {
		out = append(out, Warnf("if pods cannot access files, look at ausearch -m avc; setenforce 0 shows whether SELinux is the cause",
			"SELinux is enforcing, and coracle has no policy for it and does not label containers")...)
	}
	if m.read("/sys/module/apparmor/parameters/enabled") == "Y" && !m.exists("/sbin/apparmor_parser") {
		out = append(out, Warnf("install the package apparmor", "AppArmor is on, and without apparmor_parser pods run without its default profile")...)
	}
	return Else(out, Okf("neither SELinux nor AppArmor restricts coracle"))
}
