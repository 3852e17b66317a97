package supervise

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/exitcode"
	"github.com/coracle-dev/coracle/pkg/core/heldsocket"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/freeport"
)

func TestKilledIsRestartedAndOthersAreUntouched(t *testing.T) {
	s := &Supervisor{Programs: []Program{player("steady"), player("deaf")}, StopTimeout: time.Second}
	w := watch(s)
	stop := run(t, s)
	before := w.until(t, "both ready", allReady)
	if err := syscall.Kill(before[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	after := w.until(t, "the restart", func(all []state.Child) bool { return allReady(all) && all[0].Restarts == 1 })
	if after[0].PID == before[0].PID || after[1].PID != before[1].PID {
		t.Errorf("pids before %d, %d and after %d, %d; the other's last exit %q, restarts %d",
			before[0].PID, before[1].PID, after[0].PID, after[1].PID, after[1].LastExit, after[1].Restarts)
	}
	if want := "was killed (SIGKILL)"; after[0].LastExit != want {
		t.Errorf("last exit %q, want %q", after[0].LastExit, want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for _, c := range after {
		if alive(c.PID) {
			t.Errorf("%s (%d) is still there", c.Name, c.PID)
		}
	}
}

// TestSocket: who connects while an instance is missing is served by the next one.
func TestSocket(t *testing.T) {
	address := freeport.Loopback(t)
	var holder heldsocket.Holder
	defer holder.Close()
	server := player("server")
	server.Args = append(server.Args, address.String())
	server.Socket = func() *os.File {
		file, err := holder.Lend(address)
		if err != nil {
			t.Error(err)
		}
		return file
	}
	s := &Supervisor{Programs: []Program{server, player("steady")}}
	w := watch(s)
	stop := run(t, s)
	first := w.until(t, "both ready", allReady)
	if err := syscall.Kill(first[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.until(t, "its end", func(all []state.Child) bool { return all[0].PID != first[0].PID })
	conn, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(conn).ReadString('\n')
	again := w.until(t, "the restart", func(all []state.Child) bool { return allReady(all) && all[0].Restarts == 1 })
	if err != nil || strings.TrimSpace(said) != fmt.Sprint(again[0].PID) {
		t.Errorf("%q, %v answers, and not %d", said, err, again[0].PID)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestOutputIsComplete(t *testing.T) {
	s := &Supervisor{Programs: []Program{player("broken")}}
	w := watch(s)
	err := run(t, s)
	w.line(t, "broken|level one")
	w.line(t, "broken|the last words")
	w.line(t, "|broken ended with exit status 7: the last words; restarting at once")
	w.line(t, "restarting in 500ms")
	all := w.until(t, "its end", func(all []state.Child) bool { return all[0].State == Stopped })
	if want := "ended with exit status 7: the last words"; all[0].LastExit != want {
		t.Errorf("last exit %q, want %q", all[0].LastExit, want)
	}
	if err := err(); err == nil || !strings.Contains(err.Error(), "giving up: the last words") {
		t.Errorf("error %v", err)
	}
}

// TestRemoved: a program whose machine was removed from its cluster is not started again, and the others are stopped.
func TestRemoved(t *testing.T) {
	s := &Supervisor{Programs: []Program{player("steady"), player("removed")}}
	w := watch(s)
	stop := run(t, s)
	all := w.until(t, "the end of both", func(all []state.Child) bool { return all[0].State == Stopped && all[1].State == Stopped })
	if err := stop(); exitcode.ClassOf(err) != exitcode.Removed || err.Error() != "node n was removed" || all[1].Restarts != 0 {
		t.Errorf("error %v after %d restarts", err, all[1].Restarts)
	}
}

func TestOutputHeldOpenByOthers(t *testing.T) {
	s := &Supervisor{Programs: []Program{player("leaver")}, GiveUp: 1}
	w := watch(s)
	began := time.Now()
	stop := run(t, s)
	line := w.line(t, "leaver|left ")
	t.Cleanup(func() { _ = syscall.Kill(number(t, line[len("leaver|left "):]), syscall.SIGKILL) })
	w.until(t, "its end", func(all []state.Child) bool { return all[0].State == Stopped })
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("waited %s for a pipe that others hold open", took)
	}
	if err := stop(); err == nil {
		t.Error("no error")
	}
}

func TestStrangersAreNotBelieved(t *testing.T) {
	s := &Supervisor{Programs: []Program{player("impostor"), player("steady")}, StopTimeout: 100 * time.Millisecond}
	w := watch(s)
	run(t, s)
	check := func(all []state.Child) {
		if all[0].State == Ready {
			t.Error("believed a process that is not supervised")
		}
	}
	w.until(t, "the other", func(all []state.Child) bool { check(all); return all[1].State == Ready })
	w.line(t, "impostor|somebody has spoken")
	time.Sleep(300 * time.Millisecond) // by then it has been heard
	for len(w.changes) > 0 {
		check(<-w.changes)
	}
}

func TestChildrenDieWithTheFront(t *testing.T) {
	front := exec.Command(os.Args[0], "play", "front", filepath.Join(t.TempDir(), "notify.sock"))
	out, err := front.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := front.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child := number(t, line)
	if err := front.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = front.Wait()
	for deadline := time.Now().Add(10 * time.Second); alive(child); time.Sleep(5 * time.Millisecond) {
		if stat, err := os.ReadFile("/proc/" + strings.TrimSpace(line) + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			return // dead, and its new parent is slow
		}
		if time.Now().After(deadline) {
			_ = syscall.Kill(child, syscall.SIGKILL)
			t.Fatal("the child outlived its front")
		}
	}
}

func TestInitReapsOrphansOnly(t *testing.T) {
	if out, err := exec.Command(os.Args[0], "play", "init").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestEndLeftovers(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	f, err := Lock(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	left := exec.Command(os.Args[0], "play", "holder", lock)
	other := exec.Command(os.Args[0], "play", "holder", "elsewhere")
	for _, c := range []*exec.Cmd{left, other} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = c.Wait() }()
		defer func() { _ = c.Process.Kill() }()
		awaitCommandLine(t, c.Process.Pid)
	}
	killed, err := EndLeftovers(lock, []Program{{Path: os.Args[0], Args: []string{"play", "holder", lock}}})
	if err != nil || len(killed) != 1 || killed[0] != left.Process.Pid {
		t.Errorf("killed %v (%v), want %d", killed, err, left.Process.Pid)
	}
	if !alive(other.Process.Pid) {
		t.Error("killed a process that it was not asked for")
	}
}

// awaitCommandLine waits until a process that was just started shows its command line.
func awaitCommandLine(t *testing.T, pid int) {
	t.Helper()
	for range 1000 {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(line) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("process %d shows no command line", pid)
}

func TestLockNamesItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err := Lock(path); !asHeld(err, &held) || held.PID != os.Getpid() {
		t.Errorf("second lock: %v", err)
	}
	first.Close()
	again, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func asHeld(err error, held **HeldError) bool {
	h, ok := err.(*HeldError)
	*held = h
	return ok
}

func TestRunNeedsItsSocket(t *testing.T) {
	s := &Supervisor{Socket: "/proc/nowhere/notify.sock"}
	if err := s.Run(context.Background()); err == nil {
		t.Error("no error")
	}
}
