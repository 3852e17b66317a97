package confine

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/confine/confinetest"
)

const (
	childRoot = "CORACLE_TEST_CONFINED_IN"    // the environment variable that makes the test's executable the confined process
	childKeep = "CORACLE_TEST_CONFINED_KEEPS" // the environment variable that makes it keep a capability
	diverged  = "diverged"                    // its value for a process of which one thread cannot be confined
	testID    = 60999
)

func TestMain(m *testing.M) {
	if os.Getenv(childRoot) == diverged {
		fmt.Println(filterWithOtherThread())
		os.Exit(0)
	}
	if root := os.Getenv(childRoot); root != "" {
		confined(root)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// confined enters a confinement and prints one line for each thing that it tries.
func confined(root string) {
	opened, _ := os.Open("/etc")
	defer opened.Close()
	say := func(what string, err error) { fmt.Printf("%s: %v\n", what, err) }
	c := Confinement{ID: testID, Root: root, Syscalls: NameServer()}
	if os.Getenv(childKeep) != "" {
		c.Keep = []int{unix.CAP_NET_BIND_SERVICE}
		if os.Getenv(childKeep) == "lacking" {
			lacking := [2]unix.CapUserData{}
			now, _ := ownCapabilities()
			for i := range now {
				lacking[i].Permitted = now[i].Permitted
			}
			lacking[0].Permitted &^= 1 << unix.CAP_NET_BIND_SERVICE
			lacking[0].Effective, lacking[1].Effective = lacking[0].Permitted, lacking[1].Permitted
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&lacking[0])), 0)
			say("lack a capability", asError(errno))
		}
	}
	if err := c.Enter(); err != nil {
		fmt.Println("enter:", err)
	}
	data, err := os.ReadFile("/zone")
	say("read its file", errors.Join(err, map[bool]error{true: nil, false: errors.New("other content")}[string(data) == "its own\n"]))
	for _, name := range []string{"/etc/shadow", "../../../../etc/shadow", root + "/zone", "/proc/self/environ"} {
		_, err = os.ReadFile(name)
		say("read "+name, err)
	}
	say("write", os.WriteFile("/zone", nil, 0o644))
	_, err = unix.Openat(int(opened.Fd()), "shadow", unix.O_RDONLY, 0)
	say("open beside a descriptor", err)
	say("run a program", exec.Command("/zone").Run())
	say("become root", syscall.Setuid(0))
	say("mount", unix.Mount("", "/", "tmpfs", 0, ""))
	say("chroot", unix.Chroot("/"))
	say("new namespace", unix.Unshare(unix.CLONE_NEWUSER))
	_, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	say("clone a namespace", asError(errno))
	say("trace", unix.PtraceAttach(os.Getppid()))
	_, err = net.Listen("tcp", "127.0.0.1:0")
	say("listen", err)
	_, err = net.Listen("tcp", "127.0.0.9:81")
	say("listen below 1024", err)
	done := make(chan string)
	go func() { // in another thread
		caps, _ := capabilities()
		done <- fmt.Sprintf("user %d group %d capabilities %d", os.Getuid(), os.Getgid(), caps)
	}()
	fmt.Println(<-done)
}

func capabilities() (uint32, error) {
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	err := unix.Capget(&header, &data[0])
	return data[0].Permitted | data[1].Permitted | data[0].Effective | data[0].Inheritable, err
}

func run(t *testing.T, flags uintptr, environment ...string) string {
	t.Helper()
	root := confinetest.Dir(t)
	if err := os.WriteFile(filepath.Join(root, "zone"), []byte("its own\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), childRoot+"="+root), environment...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	return strings.ReplaceAll(out.String(), root, "ROOT")
}

func TestEnter(t *testing.T) {
	got := run(t, unix.CLONE_NEWNS)
	const want = `read its file: <nil>
read /etc/shadow: open /etc/shadow: no such file or directory
read ../../../../etc/shadow: open ../../../../etc/shadow: no such file or directory
read ROOT/zone: open ROOT/zone: no such file or directory
read /proc/self/environ: open /proc/self/environ: no such file or directory
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	for _, line := range []string{"listen: <nil>\n", fmt.Sprintf("\nuser %d group %[1]d capabilities 0\n", testID)} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in:\n%s", line, got)
		}
	}
	for _, what := range []string{"write", "open beside a descriptor", "run a program", "become root", "mount", "chroot", "new namespace", "clone a namespace", "trace", "listen below 1024"} {
		if strings.Contains(got, "\n"+what+": <nil>") || !strings.Contains(got, "\n"+what+": ") {
			t.Errorf("%s: allowed, or not tried:\n%s", what, got)
		}
	}
}

// TestKeep: the one capability that is kept works, and no other is left.
func TestKeep(t *testing.T) {
	got := run(t, unix.CLONE_NEWNS, childKeep+"=1")
	for _, line := range []string{"\nlisten below 1024: <nil>\n", fmt.Sprintf("\nuser %d group %[1]d ", testID)} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in:\n%s", line, got)
		}
	}
	for _, what := range []string{"become root", "mount", "chroot", "trace"} {
		if !strings.Contains(got, "\n"+what+": operation not permitted\n") {
			t.Errorf("%s: allowed, or not tried:\n%s", what, got)
		}
	}
}

// TestKeepLacking: a capability that is to be kept and is not there does not keep the others.
func TestKeepLacking(t *testing.T) {
	got := run(t, unix.CLONE_NEWNS, childKeep+"=lacking")
	if !strings.HasPrefix(got, "lack a capability: <nil>\nread its file") {
		t.Errorf("got:\n%s", got)
	}
	for _, what := range []string{"become root", "mount", "chroot", "trace"} {
		if !strings.Contains(got, "\n"+what+": operation not permitted\n") {
			t.Errorf("%s: allowed, or not tried:\n%s", what, got)
		}
	}
	if strings.Contains(got, "listen below 1024: <nil>") {
		t.Errorf("it listens:\n%s", got)
	}
}

// TestWithoutMountNamespace: what is possible is done, and what is missing is said.
func TestWithoutMountNamespace(t *testing.T) {
	got := run(t, 0)
	for _, want := range []string{"enter: changing the root directory: there is no mount namespace", fmt.Sprintf("\nuser %d group %[1]d capabilities 0\n", testID)} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "read /etc/shadow: <nil>") {
		t.Errorf("another user's file was read:\n%s", got)
	}
}

// filterWithOtherThread installs a filter while another thread has one of its own, which the kernel does not replace.
func filterWithOtherThread() error {
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return err
	}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
		prog := unix.SockFprog{Len: 1, Filter: &allow}
		_, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
		ready <- asError(errno)
		select {}
	}()
	if err := <-ready; err != nil {
		return err
	}
	return filter(NameServer())
}

// TestFilterNeedsAllThreads: the kernel reports a thread that it cannot confine in another way than errors.
func TestFilterNeedsAllThreads(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childRoot+"="+diverged)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "has another filter") {
		t.Errorf("%v: %s", err, out)
	}
}
