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
