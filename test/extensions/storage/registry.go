// Package storage is an example of how the API server stores and sends objects.
package storage

import (
	"context"
	"fmt"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
)

// read returns the value of a key below /registry, from the etcd of a server. etcd listens on a socket that root can open.
func read(ctx context.Context, server int, key string) ([]byte, error) {
	socket := fmt.Sprintf("unix:///proc/%d/root/run/coracle/control-plane/etcd.sock", server) // of a process of that server
	client, err := etcd.New(etcd.Config{Endpoints: []string{socket}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	got, err := client.Get(ctx, "/registry/"+key)
	if err != nil {
		return nil, err
	}
	if len(got.Kvs) == 0 {
		return nil, fmt.Errorf("etcd has no key /registry/%s", key)
	}
	return got.Kvs[0].Value, nil
}
