package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// Snapshot takes a snapshot of a session's cluster, from which others can start until Close, and removes the cluster. If this process is killed, the next
// Sweep removes the snapshot.
func (s *Session) Snapshot(ctx context.Context) (Snapshot, error) {
	name := s.Record.Name
	one, err := s.store.snapshotCluster(name, name, true)
	if err != nil {
		return one, err
	}
	s.snapshot = name
	if _, err = s.store.Down(ctx, name); isNotFound(err) {
		err = nil
	}
	return one, err
}

// sweepSnapshots removes the snapshots of sessions whose owner was killed.
func (s Store) sweepSnapshots(ctx context.Context) error {
	all, err := s.Snapshots()
	errs := []error{err}
	for _, one := range all {
		if one.Owner.none() || one.Owner.alive() {
			continue
		}
		errs = append(errs, s.RemoveSnapshot(ctx, one.Name))
	}
	return errors.Join(errs...)
}

// ListenForAPI forwards connections to an address of this machine to the cluster's API until ctx ends.
func (s *Session) ListenForAPI(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening for the API's clients: %w", err)
	}
	balancer := tcpbalancer.New(tcpbalancer.Options{Listed: []string{s.Record.API().String()}})
	go func() {
		if err := balancer.Serve(ctx, listener); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "forwarding to the API:", err)
		}
	}()
	return nil
}
