package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/localcluster/nshost"
)

// Down removes a cluster with everything that belongs to it, even after its holder was killed. It returns the cluster's record.
func (s Store) Down(ctx context.Context, name string) (Record, error) {
	for {
		r, err := s.Load(name)
		if err != nil {
			return r, err
		}
		if err := killHolder(ctx, r); err != nil {
			return r, err
		}
		if r, err = s.remove(r); !errors.Is(err, errHeld) {
			return r, err
		}
	}
}

// errHeld is for a cluster that got a holder since its record was read.
var errHeld = errors.New("a process holds the cluster")

// current returns the record of a cluster as it is now, unless the cluster was removed since, and perhaps another one made of the same name. The caller
// holds the lock.
func (s Store) current(r Record) (Record, error) {
	now, err := s.Load(r.Name)
	switch {
	case err != nil:
		return r, err
	case !now.Created.Equal(r.Created):
		return r, &NotFoundError{r.Name, s.names()}
	case now.Holder != r.Holder && now.Holder.PID != os.Getpid() && now.Holder.alive():
		return r, errHeld
	}
	return now, nil
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
	if r, err = s.current(r); err != nil {
		return r, err
	}
	all, err := s.List()
	if err != nil {
		return r, err
	}
	errs := []error{s.restoreUserConfig(r), removeLink(r.Link), removeRules(r), nshost.RemoveCgroups(r.Cgroup()),
		s.sysctls().Release(ctx, s.realRecordFile(r.Name))}
	for _, other := range handOver(r, all) {
		errs = append(errs, s.save(other))
	}
	if err := errors.Join(errs...); err != nil {
		return r, err // the record stays, so that Down can be repeated
	}
	if r.CommandDir != "" {
		errs = append(errs, os.RemoveAll(r.CommandDir))
	}
	if err := errors.Join(append(errs, s.removeFiles(r.Name))...); err != nil {
		return r, fmt.Errorf("removing the files of cluster %s: %w", r.Name, err)
	}
	s.tidy()
	return r, nil
}

// removedClusterPrefix begins the names of the directories of clusters that are being removed.
const removedClusterPrefix = ".coracle-removed-"

// removeFiles removes the directory of a cluster. An interrupted removal leaves none of its name, which the next cluster would start with, and tidy removes
// the rest.
func (s Store) removeFiles(name string) error {
	removed := s.dir(removedClusterPrefix + name)
	return nshost.Retry(func() error {
		if err := os.RemoveAll(removed); err != nil { // of an interrupted removal of the same name
			return err
		}
		if err := os.Rename(s.dir(name), removed); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.RemoveAll(removed)
	})
}

// removeRemoved removes what interrupted removals have left.
func (s Store) removeRemoved() {
	entries, _ := os.ReadDir(s.Dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), removedClusterPrefix) {
			_ = os.RemoveAll(s.dir(e.Name()))
		}
	}
}

// handOver gives other clusters the state of the user's kubeconfig before the removed one. It returns the records that changed.
func handOver(r Record, all []Record) (updated []Record) {
	for _, o := range all {
		previous, made := o.UserConfig.Previous == r.Context(), len(r.UserConfig.Made) > 0
		if o.Name == r.Name || o.UserConfig.Path != r.UserConfig.Path || !previous && !made {
			continue
		}
		if previous {
			o.UserConfig.Previous = r.UserConfig.Previous
		}
		o.UserConfig.Made = append(o.UserConfig.Made, r.UserConfig.Made...)
		updated = append(updated, o)
	}
	return updated
}

// endTimeout is the time between SIGTERM and SIGKILL.
const endTimeout = 2 * time.Second

// endGroup ends a process group, unless its number was reused.
func endGroup(group int, leader uint64) {
	if ticks, err := state.StartTicks(group); group <= 0 || err == nil && ticks != leader {
		return
	}
	EndGroup(group)
}

// EndGroup ends what is left of a process group: by SIGTERM, and after two seconds by SIGKILL.
func EndGroup(group int) {
	if syscall.Kill(-group, syscall.SIGTERM) != nil {
		return // no process is left
	}
	for asked := time.Now(); time.Since(asked) < endTimeout; <-time.After(lockPoll) {
		if syscall.Kill(-group, 0) != nil {
			return
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}
