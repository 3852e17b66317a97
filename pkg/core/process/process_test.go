package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rest are the fields of /proc/PID/stat behind the parent.
const rest = " 1 1 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 777 0 0\n"

// table is a process table in a directory.
func table(t *testing.T) string {
	proc := t.TempDir()
	for pid, p := range map[string]struct{ stat, cmdline string }{
		"1":    {"1 (init) S 0" + rest, "/sbin/init\x00"},
		"20":   {"20 (a) b (c) S 1" + rest, "/bin/shim\x00-namespace\x00\x00-id\x00abc\x00"},
		"21":   {"21 (x) Z 20" + rest, ""},
		"9":    {"9 (y) R 20" + rest, ""},
		"10":   {"10 (short) R 20", ""},
		"self": {"", ""},
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"stat": p.stat, "cmdline": p.cmdline} {
			if err := os.WriteFile(filepath.Join(proc, pid, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return proc
}

func pids(all []Process) (out []int) {
	for _, p := range all {
		out = append(out, p.PID)
	}
	return out
}

func TestAll(t *testing.T) {
	all, err := All(table(t))
	if err != nil || !slices.Equal(pids(all), []int{1, 9, 20, 21}) {
		t.Fatalf("got %+v, %v", all, err)
	}
	shim := all[2]
	if shim.Name != "a) b (c" || shim.State != 'S' || shim.Parent != 1 || shim.CPU != 420*time.Millisecond || shim.Started != 777 || len(shim.Args) != 5 {
		t.Errorf("got %+v", shim)
	}
	if shim.Value("-id") != "abc" || shim.Value("abc") != "" || shim.Value("-x") != "" || shim.Ended() || !all[3].Ended() || all[3].Args != nil {
		t.Errorf("got %+v, %+v", shim, all[3])
	}
	if got := pids(Tree(all, 20)); !slices.Equal(got, []int{20, 9, 21}) {
		t.Errorf("the tree is %v", got)
	}
	if got := pids(Tree(all, 1)); len(got) != 4 || got[0] != 1 || got[1] != 20 {
		t.Errorf("the tree is %v", got)
	}
}

// TestEnd: a process that has ended, and one that has its PID, are left alone.
func TestEnd(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	p, err := Find(cmd.Process.Pid)
	if err != nil || !p.SharesMounts("/proc") {
		t.Fatal(p, err)
	}
	other := p
	other.Started--
	if err := errors.Join(other.Signal(unix.SIGKILL), other.Wait(t.Context(), time.Minute)); err != nil {
		t.Error(err)
	}
	if err := p.Wait(t.Context(), 10*time.Millisecond); err == nil {
		t.Error("it is gone")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wait(ctx, time.Minute); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := errors.Join(p.Signal(unix.SIGKILL), p.Wait(t.Context(), time.Minute)); err != nil {
		t.Error(err)
	}
}
