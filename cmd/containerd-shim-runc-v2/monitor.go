package main

import (
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	runc "github.com/containerd/go-runc"
)

// monitor starts programs as containerd's reaper does, but on threads that outlive them. The kernel kills runc when the thread that has started it ends
// (Pdeathsig, so that it does not outlive a killed shim). containerd's reaper gives that thread back at once, as no thread of its shim ever ends;
// here it could become the thread of a sandbox, which ends with its pod. It does itself what "runc start" would do.
type monitor struct{ *reaper.Monitor }

// StartLocked implements runc.ProcessMonitor.
func (m monitor) StartLocked(command *exec.Cmd) (chan runc.Exit, error) {
	var reader *os.File
	if fifo := startFIFO(command); fifo != "" {
		released, unread := release(fifo, patience)
		if released {
			exits := make(chan runc.Exit, 1)
			exits <- runc.Exit{Timestamp: time.Now()}
			return exits, nil
		}
		reader = unread
	}
	type result struct {
		exits chan runc.Exit
		err   error
	}
	started := make(chan result)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended := m.Subscribe()
		defer m.Unsubscribe(ended)
		defer reader.Close() // it may be nil
		exits, err := m.Start(command)
		started <- result{exits, err}
		if err != nil {
			return
		}
		for exit := range ended {
			if exit.Pid == command.Process.Pid {
				return
			}
		}
	}()
	r := <-started
	return r.exits, r.err
}

// Wait implements runc.ProcessMonitor.
func (m monitor) Wait(command *exec.Cmd, exits chan runc.Exit) (int, error) {
	if command.Process == nil { // it was not necessary
		return (<-exits).Status, nil
	}
	return m.Monitor.Wait(command, exits)
}
