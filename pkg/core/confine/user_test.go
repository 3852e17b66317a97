package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBecome runs in a process of its own, because there is no way back.
func TestBecome(t *testing.T) {
	secret := os.Getenv("TEST_BECOME_SECRET")
	if secret == "" {
		if os.Geteuid() != 0 {
			t.Skip("only root can become another user")
		}
		secret = filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestBecome$", "-test.v")
		cmd.Env = append(os.Environ(), "TEST_BECOME_SECRET="+secret)
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "built with cgo") {
			t.Skip("a program with cgo cannot change all of its threads")
		}
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := Become(testID); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("built with cgo")
	} else if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func() error{
		"read root's file": func() error { _, err := os.ReadFile(secret); return err },
		"become root":      func() error { return unix.Setuid(0) },
		"mount":            func() error { return unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "") },
		"user namespace":   func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"trace":            func() error { return unix.PtraceAttach(os.Getppid()) },
		"signal to root's": func() error { return unix.Kill(os.Getppid(), 0) },
		"keep files":       func() error { return unix.Fchown(2, 0, 0) },
	} {
		if err := try(); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); errno != unix.ENOSYS {
		t.Errorf("clone3: %v, and libc does not use clone instead", errno)
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/status")
	id := fmt.Sprint(testID)
	for _, task := range tasks {
		status, _ := os.ReadFile(task)
		for _, want := range []string{"Uid:\t" + id + "\t" + id + "\t" + id, "Gid:\t" + id, "Groups:\t \n", "CapPrm:\t0000000000000000",
			"NoNewPrivs:\t1", "Seccomp:\t2"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("%s: not %q in %s", task, want, status)
			}
		}
	}
	if out, err := exec.Command("/proc/self/exe", "-test.run=^$").CombinedOutput(); err != nil {
		t.Errorf("its children do not start: %v: %s", err, out)
	}
}
