package main

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	"golang.org/x/sys/unix"
)

// TestThreadsOutliveTheirPrograms ends threads of sandboxes while programs run that the kernel kills with the thread that has started them.
func TestThreadsOutliveTheirPrograms(t *testing.T) {
	signals := make(chan os.Signal, 128)
	signal.Notify(signals, unix.SIGCHLD)
	defer signal.Stop(signals)
	go func() {
		for range signals {
			_ = reaper.Reap()
		}
	}()
	m := monitor{reaper.Default}
	var group sync.WaitGroup
	for range 100 {
		command := exec.Command("sleep", "0.1")
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
		exits, err := m.StartLocked(command)
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Duration{0, 5 * time.Millisecond} {
			go func() {
				runtime.LockOSThread() // the thread ends with this function
				time.Sleep(after)
			}()
		}
		group.Go(func() {
			if status, err := m.Wait(command, exits); err != nil || status != 0 {
				t.Errorf("a program has ended with %d, %v", status, err)
			}
		})
		time.Sleep(time.Millisecond)
	}
	group.Wait()
}

// TestNoProgram returns the error of a program that cannot be started.
func TestNoProgram(t *testing.T) {
	if _, err := (monitor{reaper.Default}).StartLocked(exec.Command("/nothing/at/all")); err == nil {
		t.Error("it was started")
	}
}
