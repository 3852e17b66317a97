// Package authorityfiles takes the cluster's authorities over from etcd while they are being changed, and reports what this server uses.
package authorityfiles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/etcd/authorities"
	"github.com/coracle-dev/coracle/pkg/etcd/encryption"
)

// Files is the component.
type Files struct {
	Dial   func() (*clientv3.Client, error)
	Prefix string // what all keys of the cluster in etcd begin with
	Node   string
	Dirs   paths.Dirs
	Apply  func(map[string][]byte) error // has root write the files
	InUse  func(context.Context) error   // returns what does not use the files yet
	Users  func() ([]string, time.Time)  // who uses former authorities, since a time
}

// Run is ready at once.
func (f Files) Run(ctx context.Context, ready func()) error {
	client, err := f.Dial()
	if err != nil {
		return err
	}
	defer client.Close()
	ready()
	for told := ""; ; {
		err := f.follow(ctx, client)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			told = ""
		} else if err.Error() != told {
			told = err.Error()
			logrus.WithField("component", "authorities").WithError(err).Warn("a change of the cluster's authorities cannot be followed; the present ones stay in use")
		}
		if lifecycle.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

const (
	pause = time.Second      // after an error, or a change of the record
	look  = 10 * time.Second // between two looks at who uses former authorities
)

// follow takes the record over and reports it. It returns when it may have changed.
func (f Files) follow(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seals, err := encryption.NewSeals(f.Dirs, pki.SealAuthorities)
	if err != nil {
		return err
	}
	store := authorities.Store(client, f.Prefix, seals)
	var r pki.Rotation
	found, err := store.Open(ctx, &r)
	if err != nil {
		return err
	}
	changes := store.Changes(ctx, found)
	if found.Exists {
		if err := f.take(ctx, r); err != nil {
			return err
		}
	}
	for {
		report := encryption.Report{Hash: r.ID(), Users: []string{}}
		if r.Stage == pki.Signing {
			report.Users, report.Since = f.Users()
		}
		again, err := f.report(ctx, store, report, changes, r.Stage == pki.Signing)
		if err != nil || !again {
			return err
		}
	}
}

// take writes the files of the record, and waits until they are used.
func (f Files) take(ctx context.Context, r pki.Rotation) error {
	if !r.Matches(f.Dirs) {
		if err := f.Apply(r.Files()); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return lifecycle.Until(limited, "the authorities "+r.ID(), func(ctx context.Context) error {
		if !r.Matches(f.Dirs) {
			return errors.New("they are not there yet")
		}
		return f.InUse(ctx)
	})
}

// report keeps a report until the record or who uses former authorities changes, which again tells.
func (f Files) report(ctx context.Context, store encryption.Store, report encryption.Report, changes clientv3.WatchChan, watchUsers bool) (again bool, err error) {
	presenting, withdraw := context.WithCancel(ctx)
	lost, err := store.Present(presenting, f.Node, report)
	if err != nil {
		withdraw()
		return false, err
	}
	defer func() {
		withdraw()
		<-lost
	}()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-changes:
			return false, nil
		case <-ctx.Done():
			return false, nil
		case <-lost:
			return false, fmt.Errorf("etcd has not kept the report of this server")
		case <-tick.C:
			if users, since := f.Users(); watchUsers && (!slices.Equal(users, report.Users) || !since.Equal(report.Since)) {
				return true, nil
			}
		}
	}
}
