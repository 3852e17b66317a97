// Package clocks gives the programs of a test host a clock of their own: it may be in 1970, jump, or run too fast, while that of this
// machine is never set.
//
// Programs read the time from code and data that the kernel maps into each of them, the vDSO. Clock replaces the code for CLOCK_REALTIME
// there by a system call that adds an offset, in every process of the host, and in each new one: one of coracle's programs is stopped
// between its exec and its first instruction until that is done, any other is changed while it starts. Monotonic clocks stay true.
//
// Only what programs ask for is changed. The times of files, the kernel's own timers, and programs that ask the kernel without the vDSO,
// or with gettimeofday or time, see this machine's clock. Programs that wait until the clock is set (TFD_TIMER_CANCEL_ON_SET) are told
// of a jump, but as if their timer had ended.
package clocks

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/test/hosts"
)

// Clock is the clock of one host.
type Clock struct {
	t     testing.TB
	host  *hosts.Host
	vdso  *vdso
	mu    sync.Mutex
	off   time.Duration
	watch *watch
}

// Epoch is where the clock of a machine without a battery begins.
var Epoch = time.Unix(0, 0)

// New makes a clock that is right. The test is skipped, with the reason, where processes cannot get one.
func New(t testing.TB) *Clock {
	t.Helper()
	v, err := readVDSO()
	if err != nil {
		t.Skipf("processes cannot have a clock of their own: %v", err)
	}
	return &Clock{t: t, vdso: v}
}

// Give gives the clock to a host after each of its boots, before coracle starts there.
func (c *Clock) Give(h *hosts.Host) {
	c.t.Helper()
	if c.watch != nil {
		c.watch.close()
	} else {
		c.t.Cleanup(func() { c.watch.close() })
	}
	c.host = h
	w, err := watchExecs(h.Cgroup(), c.started)
	if err != nil {
		c.t.Fatalf("watching what starts on %s: %v", h.Name, err)
	}
	c.watch = w
	c.Jump(0)
}

// Now is the host's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

// Set makes the host's clock show a time, for all its processes at once.
func (c *Clock) Set(at time.Time) {
	c.t.Helper()
	c.Jump(at.Sub(c.Now()))
}

// Jump sets the host's clock forward or back, for all its processes at once.
func (c *Clock) Jump(by time.Duration) {
	c.t.Helper()
	if c.host == nil || c.host.PID() == 0 { // it gets it when it boots
		c.add(by)
		return
	}
	c.host.Freeze()
	defer c.host.Thaw()
	c.JumpFrozen(by)
}

// JumpFrozen does the same on a host that is frozen.
func (c *Clock) JumpFrozen(by time.Duration) {
	c.t.Helper()
	off := c.add(by)
	err := c.each(func(pid int) error {
		if err := c.vdso.set(pid, off); err != nil {
			return err
		}
		return announce(pid)
	})
	if err != nil {
		c.t.Fatalf("setting the clock of %s: %v", c.host.Name, err)
	}
}

// Slew makes the host's clock gain so much in each second, until stop is called.
func (c *Clock) Slew(rate time.Duration) (stop func()) {
	const step = 100 * time.Millisecond
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(step)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			off := c.add(rate * step / time.Second)
			if err := c.each(func(pid int) error { return c.vdso.adjust(pid, off) }); err != nil {
				c.t.Errorf("slewing the clock of %s: %v", c.host.Name, err)
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(ended); <-done })
}

func (c *Clock) add(by time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += by
	return c.off
}

// started gives the clock to a process that has just begun a program. held says that it is being stopped until then.
func (c *Clock) started(pid int, held bool) {
	if held {
		defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
		if !awaitStopped(pid) {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.vdso.set(pid, c.off); err != nil && !gone(err) {
		c.t.Errorf("giving process %d of %s its clock: %v", pid, c.host.Name, err)
	}
}

// awaitStopped waits until a process that was sent SIGSTOP is stopped. It reports whether the process is there.
func awaitStopped(pid int) bool {
	for {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			return false
		}
		rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
		switch state, _, _ := strings.Cut(strings.TrimSpace(rest), " "); state {
		case "T":
			return true
		case "Z", "X":
			return false
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// each calls do for all processes of the host. Those that end meanwhile are no error.
func (c *Clock) each(do func(pid int) error) error {
	pids, err := processes(c.host.Cgroup())
	for _, pid := range pids {
		if e := do(pid); e != nil && !gone(e) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// processes are those in a cgroup and below it.
func processes(dir string) (pids []int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if gone(err) || err == nil && d.Name() != "cgroup.procs" {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		for _, word := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
		if gone(err) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		}
		return err
	})
	slices.Sort(pids)
	return slices.Compact(pids), err
}

// gone reports whether an error means that a process or a cgroup is not there any more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}
