package members

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// alone runs etcd with one member, whose client is on a socket.
func alone(t *testing.T) *Members {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &Members{Socket: filepath.Join(dir, "s")}
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: m.Socket}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	return m
}

// TestCompactBacklog: what many processes have left is compacted, an ordinary backlog is not, and Kubernetes' own compactor goes on from there.
func TestCompactBacklog(t *testing.T) {
	const keep = 50
	m, ctx := alone(t), t.Context()
	client, err := m.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	write := func(n int) (last int64) {
		for i := range n {
			put, err := client.Put(ctx, "lease", strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			last = put.Header.Revision
		}
		return last
	}
	compact := func(want int64) {
		t.Helper()
		if removed, err := m.CompactBacklog(ctx, keep); err != nil || removed != want {
			t.Errorf("%d revisions are removed, not %d: %v", removed, want, err)
		}
	}
	write(2*keep - 1) // the first revision is 1
	compact(0)
	upTo := write(1) - keep
	compact(upTo)
	if _, err := client.Get(ctx, "lease", clientv3.WithRev(upTo-1)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("an old revision is still there: %v", err)
	}
	if _, err := client.Get(ctx, "lease", clientv3.WithRev(upTo)); err != nil {
		t.Errorf("a revision that is to be kept is gone: %v", err)
	}
	compact(0)

	// An API server that starts takes over what is in the key, and its next compaction counts.
	version, _, compacted, err := etcd3.Compact(ctx, client, 0, 0)
	if err != nil || compacted != upTo {
		t.Fatalf("an API server reads that %d is compacted, not %d: %v", compacted, upTo, err)
	}
	now := write(2 * keep)
	if _, _, compacted, err = etcd3.Compact(ctx, client, version, now); err != nil || compacted != now {
		t.Fatalf("an API server compacts %d, not %d: %v", compacted, now, err)
	}
	write(2*keep - 2) // and the API server's own write
	compact(0)

	// A restored copy is compacted up to its last revision, and the key does not say so.
	write(2 * keep)
	if err := m.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	compact(0)
}
