package encryption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// How long after its last sign of life a server counts as running, and a command as holding the lock, in seconds.
const (
	presence = 30
	holding  = 10
)

// Report is what a server says of itself in etcd while it runs.
type Report struct {
	Hash string `json:"hash"` // of the Keys.Config that its API server uses
	// Users are those who use what is about to be dropped; see package authorities.
	Users []string `json:"users,omitempty"`
	// Since is when the server began to look for them.
	Since time.Time `json:"since,omitzero"`
}

func (s Store) servers() string { return s.record() + "-servers/" }

// Servers returns the running servers that follow changes of the keys, by the names of their nodes.
func (s Store) Servers(ctx context.Context) (map[string]Report, error) {
	got, err := s.Client.Get(ctx, s.servers(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading which servers follow %s: %w", s.what(), err)
	}
	all := map[string]Report{}
	for _, kv := range got.Kvs {
		var r Report
		if err := json.Unmarshal(kv.Value, &r); err != nil {
			return nil, fmt.Errorf("reading which keys servers use: %s is damaged: %w", kv.Key, err)
		}
		all[strings.TrimPrefix(string(kv.Key), s.servers())] = r
	}
	return all, nil
}

// Present keeps a server's report in etcd as long as ctx lives and etcd can be reached, and removes it afterwards. lost is closed when the report is
// no longer kept.
func (s Store) Present(ctx context.Context, server string, r Report) (lost <-chan struct{}, err error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	lease, err := s.Client.Grant(ctx, presence)
	if err != nil {
		return nil, err
	}
	alive, err := s.Client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return nil, err
	}
	if _, err := s.Client.Put(ctx, s.servers()+server, string(text), clientv3.WithLease(lease.ID)); err != nil {
		return nil, err
	}
	end := make(chan struct{})
	go func() {
		defer close(end)
		for range alive { //nolint:revive // the values tell nothing
		}
		if ctx.Err() != nil { // a server that stops is not waited for
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = s.Client.Revoke(last, lease.ID) // else it ends by itself
		}
	}()
	return end, nil
}

// Lock makes sure that one command at a time changes a record. The lock of a command that was killed ends by itself. locked ends when the lock is lost.
func (s Store) Lock(ctx context.Context, who string) (locked context.Context, unlock func(), err error) {
	lease, err := s.Client.Grant(ctx, holding)
	if err != nil {
		return nil, nil, fmt.Errorf("locking %s: %w", s.what(), err)
	}
	key := s.record() + "-lock"
	unlock = func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = s.Client.Revoke(last, lease.ID) // else it ends by itself
	}
	done, present, err := s.putIf(ctx, key, who, 0, clientv3.WithLease(lease.ID))
	if err != nil {
		unlock()
		return nil, nil, fmt.Errorf("locking %s: %w", s.what(), err)
	}
	if !done {
		unlock()
		holder := "another command"
		if present != nil {
			holder = string(present.Value)
		}
		return nil, nil, fmt.Errorf("%s are being changed by %s: wait for it, or, if it was killed, ten seconds", s.what(), holder)
	}
	alive, err := s.Client.KeepAlive(ctx, lease.ID)
	if err != nil {
		unlock()
		return nil, nil, fmt.Errorf("locking %s: %w", s.what(), err)
	}
	locked, lose := context.WithCancelCause(ctx)
	go func() {
		for range alive { //nolint:revive // the values tell nothing
		}
		lose(errors.New("the datastore does not answer, or somebody else changes them: run the same command again"))
	}()
	return locked, unlock, nil
}
