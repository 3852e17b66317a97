package hosts

import (
	"bytes"
	"fmt"
	"syscall"
	"time"
)

// KillCoracle runs a coracle command on the host, and kills it with SIGKILL after a time. killed is false if it has ended before, with err.
func (h *Host) KillCoracle(after time.Duration, args ...string) (killed bool, err error) {
	h.t.Helper()
	var out bytes.Buffer
	cmd := h.Command(h.bin(), args...)
	cmd.Stdout, cmd.Stderr = &out, &out // Wait returns when nobody can write to them any more: when the command has ended too
	// The process of cmd has entered the host, and the command is its child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.must(cmd.Start())
	timer := time.AfterFunc(after, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	if err = cmd.Wait(); err != nil {
		err = fmt.Errorf("%w: %s", err, out.Bytes())
	}
	return !timer.Stop() && err != nil, err
}
