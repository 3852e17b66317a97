package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// Down removes a cluster with everything that belongs to it, also after its holder was killed. It returns the cluster's record.
func (s Store) Down(ctx context.Context, name string) (Record, error) {
	r, err := s.Load(name)
	if err != nil {
		return r, err
	}
	if err := killHolder(ctx, r); err != nil {
		return r, err
	}
	return s.remove(r)
}

// killHolder kills the holder, and with it all processes of the cluster, and waits until it has ended.
func killHolder(ctx context.Context, r Record) error {
	if r.Holder.none() || !r.Holder.alive() {
		return nil
	}
	if err := syscall.Kill(r.Holder.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending the process that holds cluster %s: %w", r.Name, err)
	}
	for r.Holder.alive() {
		if lifecycle.Sleep(ctx, 10*time.Millisecond) != nil {
			return fmt.Errorf("waiting for process %[2]d, which holds cluster %[1]s, to end: %[3]w", r.Name, r.Holder.PID, context.Cause(ctx))
		}
	}
	return nil
}

// remove removes a cluster from the kernel and the disk. Its processes have ended or are ending.
func (s Store) remove(r Record) (Record, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	unlock, err := s.lock(ctx)
	if err != nil {
		return r, err
	}
	defer unlock()
	all, err := s.List()
	if err != nil {
		return r, err
	}
	var others []Record
	for _, o := range all {
		if o.Name != r.Name {
			others = append(others, o)
		}
	}
	errs := []error{s.restoreUserConfig(r), removeLink(r.Link), removeTable(r), removeForwardRules(r), nshost.RemoveCgroups(r.Cgroup()),
		machineSysctls().Release(ctx, s.realRecordFile(r.Name))}
	for _, other := range handOver(r, others) {
		errs = append(errs, s.save(other))
	}
	if err := errors.Join(errs...); err != nil {
		return r, err // the record stays, so that Down can be repeated
	}
	if r.CommandDir != "" {
		errs = append(errs, os.RemoveAll(r.CommandDir))
	}
	if err := errors.Join(append(errs, removeAll(s.dir(r.Name)))...); err != nil {
		return r, fmt.Errorf("removing the files of cluster %s: %w", r.Name, err)
	}
	s.tidy()
	return r, nil
}

// handOver gives other clusters the state of the user's kubeconfig before the removed one. It returns the records that changed.
func handOver(r Record, others []Record) (updated []Record) {
	for _, o := range others {
		changed := false
		if o.UserConfig.Path == r.UserConfig.Path && o.UserConfig.Previous == r.Context() {
			o.UserConfig.Previous, changed = r.UserConfig.Previous, true
		}
		if o.UserConfig.Path == r.UserConfig.Path && len(r.UserConfig.Made) > 0 {
			o.UserConfig.Made, changed = append(o.UserConfig.Made, r.UserConfig.Made...), true
		}
		if changed {
			updated = append(updated, o)
		}
	}
	return updated
}

// removeAll removes a directory, repeatedly while processes that are being killed write to it.
func removeAll(dir string) error {
	return nshost.Retry(func() error { return os.RemoveAll(dir) })
}
