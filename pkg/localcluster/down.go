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

// Down removes a cluster and all that it left, also one whose keeper is gone. It returns what was known of it.
func (s Store) Down(ctx context.Context, name string) (Record, error) {
	r, err := s.Load(name)
	if err != nil {
		return r, err
	}
	if err := killKeeper(ctx, r); err != nil {
		return r, err
	}
	return s.remove(r)
}

// killKeeper ends the keeper, and with it everything that runs in the cluster, and waits for that.
func killKeeper(ctx context.Context, r Record) error {
	if r.Keeper.none() || !r.Keeper.alive() {
		return nil
	}
	if err := syscall.Kill(r.Keeper.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending the keeper of cluster %s: %w", r.Name, err)
	}
	for r.Keeper.alive() {
		if lifecycle.Sleep(ctx, 10*time.Millisecond) != nil {
			return fmt.Errorf("waiting for the keeper of cluster %s, process %d, to end: %w", r.Name, r.Keeper.PID, context.Cause(ctx))
		}
	}
	return nil
}

// remove removes what a cluster left in the kernel and on the disk, and forgets it. Its processes have ended, or are
// about to.
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
	errs := []error{s.restoreUserConfig(r), removeLink(r.Link), removeTable(r), leaveFirewall(r), nshost.RemoveCgroups(r.Cgroup()),
		machineSysctls().Release(ctx, s.recordFile(r.Name))}
	for _, heir := range inherit(r, others) {
		errs = append(errs, s.save(heir))
	}
	if err := errors.Join(errs...); err != nil {
		return r, err // its record stays, so that one can try again
	}
	if r.Handout != "" {
		errs = append(errs, os.RemoveAll(r.Handout))
	}
	if err := errors.Join(append(errs, removeAll(s.dir(r.Name)))...); err != nil {
		return r, fmt.Errorf("removing the files of cluster %s: %w", r.Name, err)
	}
	s.tidy()
	return r, nil
}

// inherit gives others what the cluster knew and they will need. It returns those that have changed.
func inherit(r Record, others []Record) (heirs []Record) {
	for _, o := range others {
		changed := false
		if o.UserConfig.Path == r.UserConfig.Path && o.UserConfig.Previous == r.Context() {
			o.UserConfig.Previous, changed = r.UserConfig.Previous, true
		}
		if o.UserConfig.Path == r.UserConfig.Path && len(r.UserConfig.Made) > 0 {
			o.UserConfig.Made, changed = append(o.UserConfig.Made, r.UserConfig.Made...), true
		}
		if changed {
			heirs = append(heirs, o)
		}
	}
	return heirs
}

// removeAll removes a directory. Processes that are being killed may write to it for a moment.
func removeAll(dir string) error {
	return nshost.Retry(func() error { return os.RemoveAll(dir) })
}
