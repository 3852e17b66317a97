package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"os/exec"

	"golang.org/x/sys/unix"
)

// A test binary that uses hosts calls Main first: the harness re-executes the binary in these roles.
const (
	roleEnv   = "CORACLE_TEST_ROLE"
	roleEnter = "enter" // in the new namespaces, still outside the cgroup namespace
	roleInit  = "init"  // the host's PID 1
)

// Main runs the tests, or one of the roles in which the harness re-executes the test binary.
// A package with hosts has `func TestMain(m *testing.M) { os.Exit(hosts.Main(m)) }`.
func Main(m *testing.M) int {
	switch os.Getenv(roleEnv) {
	case "":
		return m.Run()
	case roleEnter:
		return report(enter())
	case roleInit:
		return report(runInit())
	case roleDNS:
		return report(serveDNS())
	}
	return 2
}

func report(err error) int {
	fmt.Fprintln(os.Stderr, "test host:", err)
	return 1
}

// enter waits until it has been put into its cgroups, then makes them the root of a cgroup namespace. The exec
// that follows takes all threads along.
func enter() error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the go: %w", err)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a cgroup namespace: %w", err)
	}
	os.Setenv(roleEnv, roleInit)
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// runInit builds the host's file systems, says that it is up with one byte on standard output, and reaps for ever.
func runInit() error {
	dir := os.Getenv("CORACLE_TEST_HOSTDIR")
	if err := unix.Sethostname([]byte(os.Getenv("CORACLE_TEST_HOST"))); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := buildRoot(dir); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("setting lo up: %w: %s", err, out)
	}
	if _, err := os.Stdout.Write([]byte("\n")); err != nil {
		return err
	}
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.ECHILD {
			// Nobody is there yet; a child that appears later announces its end by SIGCHLD.
			waitForChild()
		}
	}
}

// waitForChild blocks until some child has ended.
func waitForChild() {
	set := unix.Sigset_t{}
	set.Val[0] = 1 << (uint(unix.SIGCHLD) - 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil)
	fd, err := unix.Signalfd(-1, &set, unix.SFD_CLOEXEC)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	_, _ = unix.Poll(poll, 1000)
}

// A mount of the host's file system tree. Targets are relative to the new root.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// buildRoot makes a copy-on-write view of this machine's root the host's root.
func buildRoot(dir string) error {
	root, layers := filepath.Join(dir, "root"), filepath.Join(dir, "layers")
	for _, sub := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(layers, sub), 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	overlay := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", layers, layers)
	mounts := []mount{
		{"overlay", "", "overlay", 0, overlay},
		{"proc", "proc", "proc", 0, ""},
		{"sysfs", "sys", "sysfs", 0, ""},
		{"/dev", "dev", "", unix.MS_BIND | unix.MS_REC, ""},
		{"tmpfs", "run", "tmpfs", 0, "mode=0755"},
		{"tmpfs", "tmp", "tmpfs", 0, "mode=1777"},
		{"tmpfs", "root", "tmpfs", 0, "mode=0700"}, // this machine's may hold a kubeconfig and caches of other clusters
		{filepath.Join(dir, "data"), "var/lib/coracle", "", unix.MS_BIND, ""},
		{filepath.Join(dir, "kubelet"), "var/lib/kubelet", "", unix.MS_BIND, ""},
		{"tmpfs", "sys/fs/cgroup", "tmpfs", 0, "mode=0755"},
	}
	if bin := os.Getenv("CORACLE_BIN"); bin != "" { // which may lie below one of these
		bin = filepath.Dir(bin)
		mounts = append(mounts, mount{bin, strings.TrimPrefix(bin, "/"), "", unix.MS_BIND, ""})
	}
	for _, h := range hierarchies() {
		mounts = append(mounts, mount{"cgroup", "sys/fs/cgroup/" + h.name, h.fstype, 0, h.options})
	}
	for _, m := range mounts {
		target := filepath.Join(root, m.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.source, target, err)
		}
	}
	return pivot(root)
}

// pivot makes root the root of this mount namespace and lets go of the old one.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivoting into %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("letting go of the old root: %w", err)
	}
	return os.Chdir("/")
}

// startOnDurableThread starts a command whose Pdeathsig must not fire when a Go thread ends.
func startOnDurableThread(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	started := make(chan error)
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-stop
	}()
	if err := <-started; err != nil {
		t.Fatalf("starting %s: %v", cmd.Path, err)
	}
}
