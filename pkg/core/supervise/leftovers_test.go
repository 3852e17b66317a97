package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLeftoversOfOthers: a coracle in a container has the same paths and arguments, but they lead to other files.
func TestLeftoversOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	f, err := Lock(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other := exec.Command("sh", "-c", `mount -t tmpfs none "$1" && : >"$2" && exec "$0" play holder "$2"`, os.Args[0], dir, lock)
	other.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		t.Skipf("making a mount namespace: %v", err)
	}
	ended := make(chan struct{})
	go func() { _ = other.Wait(); close(ended) }()
	defer func() { _ = other.Process.Kill() }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", other.Process.Pid))
		if strings.HasPrefix(string(line), os.Args[0]+"\x00") {
			break
		}
		select {
		case <-ended:
			t.Skip("nothing can be mounted here")
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the other process runs %q", line)
		}
	}
	killed, err := EndLeftovers(lock, []Program{{Path: os.Args[0], Args: []string{"play", "holder", lock}}})
	if err != nil || len(killed) != 0 {
		t.Errorf("killed %v, %v", killed, err)
	}
}
