package members

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Compact removes all revisions before the present one. Watches that are behind must start again.
func (m *Members) Compact(ctx context.Context) error {
	return m.do(func(client *clientv3.Client) error {
		now, err := client.Maintenance.Status(ctx, "unix://"+m.Socket)
		if err != nil {
			return fmt.Errorf("asking etcd for its revision: %w", explain(err))
		}
		if _, err := client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			return fmt.Errorf("compacting etcd: %w", explain(err))
		}
		return nil
	})
}

// compactedKey is where API servers keep the revision up to which etcd is compacted, and whose version keeps two from compacting at once:
// k8s.io/apiserver/pkg/storage/etcd3/compact.go.
const compactedKey = "compact_rev_key"

// CompactBacklog removes all revisions before the present one, if more than most have gathered since an API server's last compaction. Watches and lists in
// pieces that are behind must start again. It returns how many revisions had gathered, 0 if it left them alone.
func (m *Members) CompactBacklog(ctx context.Context, most int64) (backlog int64, err error) {
	err = m.do(func(client *clientv3.Client) error {
		last, err := client.Get(ctx, compactedKey, clientv3.WithSerializable()) // most starts have nothing to do, and need no other member for that
		if err != nil {
			return fmt.Errorf("asking etcd for its last compaction: %w", explain(err))
		}
		now, version, compacted := last.Header.Revision, int64(0), int64(0)
		for _, kv := range last.Kvs {
			version = kv.Version
			if compacted, err = strconv.ParseInt(string(kv.Value), 10, 64); err != nil {
				return fmt.Errorf("reading etcd's %s: %w", compactedKey, err)
			}
		}
		if now-compacted <= most {
			return nil
		}
		done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Version(compactedKey), "=", version)).
			Then(clientv3.OpPut(compactedKey, strconv.FormatInt(now, 10))).Commit()
		if err != nil || !done.Succeeded { // then an API server compacts
			return explain(err)
		}
		if _, err := client.Compact(ctx, now); err != nil {
			return fmt.Errorf("compacting etcd: %w", explain(err))
		}
		backlog = now - compacted
		return nil
	})
	return backlog, err
}
