package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/diagnose/preflight"
)

func cgroups(_ context.Context, m *Machine) []Verdict {
	found := From(preflight.Cgroups(m.Config))
	for _, v := range found {
		if v.Result == Fail {
			return found
		}
	}
	dir, version := "/sys/fs/cgroup/memory", "v1"
	if m.exists("/sys/fs/cgroup/cgroup.controllers") {
		dir, version = "/sys/fs/cgroup", "v2"
	}
	if m.Running { // it makes some all the time, and its kubelet watches
		return Else(found, Okf("%s, with the controllers that are needed", version))
	}
	err := makeCgroup(dir)
	if errors.Is(err, unix.EROFS) {
		err = m.unlocked(dir, func() error { return makeCgroup(dir) })
	}
	if err != nil {
		return append(found, Failf("in a container, give it cgroups that it may write: --privileged, or --cap-add SYS_ADMIN",
			"no cgroup can be made in %s: %v", dir, err)...)
	}
	return Else(found, Okf("%s, with the controllers that are needed", version))
}

// makeCgroup makes a cgroup and removes it.
func makeCgroup(dir string) error {
	try, err := os.MkdirTemp(dir, "coracle-check-")
	if err != nil {
		return errors.Unwrap(err) // without the name that was tried
	}
	return os.Remove(try)
}

// unlocked runs do where a mount is writable that a container engine has made read-only, as coracle does when it starts.
func (m *Machine) unlocked(point string, do func() error) error {
	return preflight.Apart(unix.CLONE_NEWNS, func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("", point, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
			return err
		}
		return do()
	})
}

func namespaces(_ context.Context, m *Machine) []Verdict {
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	if found := From(preflight.Apart(all, func() error { return nil })); found != nil {
		return found
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

// noNamespaces is why nothing can be tried.
const noNamespaces = "nothing can be tried without namespaces, see check namespaces"

// apart finds out whether namespaces can be made at all.
func apart(more int) error {
	return preflight.Apart(unix.CLONE_NEWNS|more, func() error { return nil })
}

func overlayfs(_ context.Context, m *Machine) []Verdict {
	dir := nearest(m.Config.Dirs.Data)
	if apart(0) != nil {
		return Skipf("%s", noNamespaces)
	}
	return Else(From(preflight.Mounts(dir)), Okf("overlays can be mounted in %s", dir))
}

// wanted are modules that coracle has the kernel load when it needs them.
var wanted = []string{"overlay", "bridge", "br_netfilter", "veth", "vxlan", "nf_tables", "nf_conntrack", "nf_nat", "nft_masq", "nft_fib"}

// modules compares what is loaded with what could be loaded. A kernel that was replaced on the disk and still runs can load
// nothing any more.
func modules(_ context.Context, m *Machine) []Verdict {
	var u unix.Utsname
	_ = unix.Uname(&u) // it cannot fail
	release := unix.ByteSliceToString(u.Release[:])
	dir := "/lib/modules/" + release
	if !m.exists(dir) {
		if m.read("/proc/modules") != "" {
			return Warnf("reboot, if the kernel was upgraded; in a container, mount the host's /lib/modules (-v /lib/modules:/lib/modules:ro)",
				"there is no %s: modules of the running kernel that are not loaded yet cannot be", dir)
		}
		return Okf("the kernel has everything built in that it has")
	}
	builtin, loadable := m.read(dir+"/modules.builtin"), m.read(dir+"/modules.dep")
	var missing []string
	for _, name := range wanted {
		if !m.exists("/sys/module/"+name) && !listed(builtin, name) && !listed(loadable, name) {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return Warnf("install the package with the kernel's other modules (as linux-modules-extra, kernel-modules-extra)",
			"the kernel has no modules %s; the checks below say whether they are missed", strings.Join(missing, ", "))
	}
	return Okf("all that are needed are loaded, built in, or in %s", dir)
}

// listed reports whether a module is in the text of modules.builtin or modules.dep: PATH/NAME.ko, perhaps compressed. The
// kernel makes no difference between - and _ in names.
func listed(text, name string) bool {
	return strings.Contains(strings.ReplaceAll(text, "-", "_"), "/"+name+".ko")
}

func seccomp(_ context.Context, m *Machine) []Verdict {
	actions := strings.Fields(m.read("/proc/sys/kernel/seccomp/actions_avail"))
	if !slices.Contains(actions, "errno") {
		return Failf("use a kernel with CONFIG_SECCOMP_FILTER", "the kernel has no seccomp filters, and pods with a profile do not start")
	}
	if preflight.Capabilities(m.Config) == nil { // else the refusal is theirs
		if wrong := From(preflight.SystemCalls(m.Config)); wrong != nil {
			return wrong
		}
	}
	return Okf("pods may have them, and none is in the way here")
}

// deviceRules finds out whether it can be said which devices a pod may use: by a controller, or in v2 by a program.
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

// loadDeviceProgram loads the program "return 1" and forgets it.
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
		out = append(out, Warnf("if pods are denied files, look at ausearch -m avc; setenforce 0 tells whether it is SELinux",
			"SELinux is enforcing, and coracle brings no policy and labels no containers")...)
	}
	if m.read("/sys/module/apparmor/parameters/enabled") == "Y" && !m.exists("/sbin/apparmor_parser") {
		out = append(out, Warnf("install the package apparmor", "AppArmor is on, and without apparmor_parser pods run without its default profile")...)
	}
	return Else(out, Okf("nothing that is in the way"))
}
