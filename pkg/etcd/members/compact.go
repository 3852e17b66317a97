package members

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

// CompactBacklog removes all revisions but the last keep, if twice as many have gathered since the last compaction by an API server. Watches, and lists with
// limit and continue, that are further behind must start again. It returns how many revisions it removed.
func (m *Members) CompactBacklog(ctx context.Context, keep int64) (removed int64, err error) {
	err = m.do(func(client *clientv3.Client) error {
		last, err := client.Get(ctx, compactedKey)
		if err != nil {
			return fmt.Errorf("asking etcd for its last compaction: %w", explain(err))
		}
		upTo, version, compacted := last.Header.Revision-keep, int64(0), int64(0)
		for _, kv := range last.Kvs {
			version = kv.Version
			compacted, _ = strconv.ParseInt(string(kv.Value), 10, 64) // API servers, too, take what is no number for none
		}
		if upTo-compacted <= keep {
			return nil
		}
		done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Version(compactedKey), "=", version)).
			Then(clientv3.OpPut(compactedKey, strconv.FormatInt(upTo, 10))).Commit()
		if err != nil {
			return fmt.Errorf("announcing a compaction of etcd: %w", explain(err))
		}
		if !done.Succeeded { // an API server compacts
			return nil
		}
		_, err = client.Compact(ctx, upTo)
		if errors.Is(err, rpctypes.ErrCompacted) { // by the restoration of a copy, or because it was full
			return nil
		}
		if err != nil {
			return fmt.Errorf("compacting etcd: %w", explain(err))
		}
		removed = upTo - compacted
		return nil
	})
	return removed, err
}
