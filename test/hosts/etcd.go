package hosts

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Etcd runs f with a client of a server's own member.
func (c *Cluster) Etcd(h *Host, f func(ctx context.Context, client *clientv3.Client, endpoint string) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	endpoint := "unix://" + h.Path(paths.Default().EtcdSocket())
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	return f(ctx, client, endpoint)
}

// Leads reports whether a server's member is etcd's leader, and its ID.
func (c *Cluster) Leads(h *Host) (leads bool, id uint64, err error) {
	err = c.Etcd(h, func(ctx context.Context, client *clientv3.Client, endpoint string) error {
		status, err := client.Status(ctx, endpoint)
		if err != nil {
			return err
		}
		id, leads = status.Header.MemberId, status.Leader == status.Header.MemberId
		return nil
	})
	return leads, id, err
}

// errDifferent is for members of etcd whose data should be the same.
var errDifferent = errors.New("the members of etcd have different data")

// SameData is an error unless the members of all servers have the same data. A member may apply the last writes, or compact its data, later
// than others, which is waited for.
func (c *Cluster) SameData() error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		hashes, err := c.hashes()
		if err == nil {
			err = same(hashes)
		}
		if err == nil || errors.Is(err, errDifferent) || time.Now().After(deadline) {
			return err
		}
	}
}

// same is an error unless all hashes are the same. Only hashes of data that was compacted at the same revision can be compared.
func same(hashes []*clientv3.HashKVResponse) error {
	for _, h := range hashes {
		if h.CompactRevision != hashes[0].CompactRevision {
			return fmt.Errorf("a member of etcd has compacted to revision %d, another one to %d", h.CompactRevision, hashes[0].CompactRevision)
		}
	}
	for _, h := range hashes {
		if h.Hash != hashes[0].Hash {
			return fmt.Errorf("%w: %v", errDifferent, hashes)
		}
	}
	return nil
}

// hashes are the hashes of the data of each server's member, up to the first one's revision.
func (c *Cluster) hashes() (out []*clientv3.HashKVResponse, err error) {
	revision := int64(0)
	for _, h := range c.Servers {
		err := c.Etcd(h, func(ctx context.Context, client *clientv3.Client, endpoint string) error {
			hash, err := client.HashKV(ctx, endpoint, revision)
			if err == nil {
				revision, out = hash.HashRevision, append(out, hash)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return out, nil
}

// Leader is the server whose member leads etcd. It is waited for, as there may be an election.
func (c *Cluster) Leader() (*Host, error) {
	var problems []error
	for range 50 {
		for _, h := range c.Servers {
			leads, _, err := c.Leads(h)
			if leads {
				return h, nil
			}
			problems = append(problems, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, fmt.Errorf("etcd has no leader: %v", errors.Join(problems[max(0, len(problems)-3):]...))
}
