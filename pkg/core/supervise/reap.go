package supervise

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Children records the child processes that this process waits for itself. The zero value is usable.
type Children struct {
	mu     sync.Mutex
	reaped map[int]chan struct{} // by process id; closed after wait
}

// start starts cmd. The lock is held until the PID is recorded, so that a child that ends at once is not taken for an orphan.
func (c *Children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if c.reaped == nil {
		c.reaped = map[int]chan struct{}{}
	}
	c.reaped[cmd.Process.Pid] = make(chan struct{})
	return nil
}

// wait waits for a child that start has started.
func (c *Children) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.reaped[cmd.Process.Pid])
	delete(c.reaped, cmd.Process.Pid)
	return err
}

// Run is cmd.Run for a child that ReapOrphans must leave alone. On a nil Children it is just that.
func (c *Children) Run(cmd *exec.Cmd) error {
	if c == nil {
		return cmd.Run()
	}
	if err := c.start(cmd); err != nil {
		return err
	}
	return c.wait(cmd)
}

// ReapOrphans waits for every process that became a child of this one because its parent ended, until ctx is done. PID 1 of a
// container has to do so, or zombies accumulate. It leaves children alone that Children has started.
func (c *Children) ReapOrphans(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		c.reapEnded()
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
	}
}

// reapEnded reaps ended orphans. For other ended children it waits until wait has reaped them.
func (c *Children) reapEnded() {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		pid := siginfoPID(&info)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
		c.mu.Lock()
		reaped, ours := c.reaped[pid]
		c.mu.Unlock()
		if ours {
			<-reaped
			continue
		}
		var status unix.WaitStatus
		_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil)
	}
}

// siginfoPID reads si_pid of a SIGCHLD's siginfo. On 64-bit Linux the fields after si_signo, si_errno and si_code
// begin at byte 16, si_pid first.
func siginfoPID(info *unix.Siginfo) int {
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), 16)))
}
