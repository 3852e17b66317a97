package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/containerd/containerd/v2/pkg/sys/reaper"
	runc "github.com/containerd/go-runc"
)

// monitor starts programs as containerd's reaper does, but on threads that outlive them. The kernel kills runc when the thread that has started it ends
// (Pdeathsig, so that it does not outlive a killed shim). containerd's reaper gives that thread back at once, as no thread of its shim ever ends;
// here it could become the thread of a sandbox, which ends with its pod. Instead of "runc start" it starts the container itself.
type monitor struct{ *reaper.Monitor }

// StartLocked implements runc.ProcessMonitor.
func (m monitor) StartLocked(command *exec.Cmd) (chan runc.Exit, error) {
	if dir := createdDir(command); dir != "" {
		if err := start(dir, startLimit); !errors.Is(err, errNotCreated) {
			return ended(command, err), nil
		}
	}
	type result struct {
		exits chan runc.Exit
		err   error
	}
	started := make(chan result)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		all := m.Subscribe()
		defer m.Unsubscribe(all)
		exits, err := m.Start(command)
		started <- result{exits, err}
		if err != nil {
			return
		}
		for exit := range all {
			if exit.Pid == command.Process.Pid {
				return
			}
		}
	}()
	r := <-started
	return r.exits, r.err
}

// ended returns the end of a command that was not executed.
func ended(command *exec.Cmd, err error) chan runc.Exit {
	exit := runc.Exit{Timestamp: time.Now()}
	if err != nil {
		exit.Status = 1
		if command.Stderr != nil { // go-runc returns it
			fmt.Fprintln(command.Stderr, err)
		}
	}
	exits := make(chan runc.Exit, 1)
	exits <- exit
	return exits
}

// Wait implements runc.ProcessMonitor.
func (m monitor) Wait(command *exec.Cmd, exits chan runc.Exit) (int, error) {
	if command.Process == nil { // see ended
		return (<-exits).Status, nil
	}
	return m.Monitor.Wait(command, exits)
}
