package hosts

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
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

// Unlock removes the locks of killed commands that changed keys or authorities, which end by themselves after ten seconds.
func (c *Cluster) Unlock(h *Host) {
	c.t.Helper()
	for _, record := range []string{"encryption", "authorities"} {
		h.must(c.Etcd(h, func(ctx context.Context, client *clientv3.Client, _ string) error {
			_, err := client.Delete(ctx, "/registry/coracle.io/"+record+"-lock")
			return err
		}))
	}
}
