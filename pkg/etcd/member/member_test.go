package member

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/test/golden"
)

func TestMain(m *testing.M) {
	if level, err := logrus.ParseLevel(os.Getenv("LOG")); err == nil {
		logrus.SetLevel(level)
	} else {
		logrus.SetOutput(io.Discard)
	}
	os.Exit(m.Run())
}

// run starts e and returns when it is ready or has ended. stop ends it.
func run(t *testing.T, e *Etcd) (err error, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- e.Run(ctx, func() { close(ready) }) }()
	stop = func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("stopping: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("it does not stop")
		}
	}
	select {
	case <-ready:
		if e.running.Server.ClusterVersion() == nil {
			t.Error("the member is ready before others can join it: the cluster has no version")
		}
		return nil, stop
	case err := <-done:
		cancel()
		return err, nil
	case <-time.After(2 * time.Minute):
		t.Fatal("neither ready nor ended")
		return nil, nil
	}
}

func newEtcd(t *testing.T) *Etcd {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &Etcd{Name: "n1", Dir: filepath.Join(dir, "data"), Socket: filepath.Join(dir, "etcd.sock"), Peer: netip.MustParseAddrPort("127.0.0.1:2380"), TLS: certificate(t, "127.0.0.1")}
}

func client(t *testing.T, e *Etcd) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + e.Socket}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFirstStarts wants from each first start on a busy machine that others can join the member when it is ready; see run. etcd alone needs 5 s
// longer for some.
func TestFirstStarts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8 * runtime.NumCPU()))
	busy, stop := context.WithCancel(t.Context())
	defer stop()
	for range 4 * runtime.NumCPU() {
		go func() {
			for busy.Err() == nil {
			}
		}()
	}
	for range 10 {
		err, stop := run(t, newEtcd(t))
		if err != nil {
			t.Fatal(err)
		}
		stop()
	}
}

func TestRestart(t *testing.T) {
	e := newEtcd(t)
	for i := range 3 {
		began := time.Now()
		err, stop := run(t, e)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("ready after %s", time.Since(began))
		c := client(t, e)
		if _, err := c.Put(t.Context(), fmt.Sprint("key", i), "x"); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(t.Context(), "key", clientv3.WithPrefix())
		if err != nil || len(got.Kvs) != i+1 {
			t.Errorf("start %d: %d keys, %v", i, len(got.Kvs), err)
		}
		c.Close()
		stop()
	}
}

// TestDamage breaks each kind of file and wants a sentence, not a panic or the end of the process.
func TestDamage(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string){
		"database garbled": func(t *testing.T, dir string) { garble(t, filepath.Join(dir, "member/snap/db"), 0, 64<<10) },
		"database cut":     func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "member/snap/db"), 3000) },
		"database empty":   func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "member/snap/db"), 0) },
		"database lost":    func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "member/snap/db")) },
		"log garbled":      func(t *testing.T, dir string) { garble(t, wal(t, dir), 8, 4<<10) },
		"length too large": func(t *testing.T, dir string) {
			changeLength(t, wal(t, dir), 100, func(l int64) int64 { return l | 1<<48 })
		},
		"length zero":        func(t *testing.T, dir string) { changeLength(t, wal(t, dir), 100, func(int64) int64 { return 0 }) },
		"log empty":          func(t *testing.T, dir string) { truncate(t, wal(t, dir), 0) },
		"directory readable": func(t *testing.T, dir string) { remove(t, dir); write(t, dir) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEtcd(t)
			err, stop := run(t, e)
			if err != nil {
				t.Fatal(err)
			}
			c := client(t, e)
			for i := range 200 {
				if _, err := c.Put(t.Context(), fmt.Sprint("key", i), strings.Repeat("x", 1000)); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
			stop()
			damage(t, e.Dir)
			err, stop = run(t, e)
			if err == nil {
				// etcd may be able to repair it: then what was acknowledged must be there.
				c := client(t, e)
				defer c.Close()
				got, err := c.Get(t.Context(), "key", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil || got.Count != 200 {
					t.Errorf("it started with %d of 200 keys: %v", got.Count, err)
				}
				stop()
				return
			}
			t.Log(err)
			if !strings.Contains(err.Error(), e.Dir) {
				t.Errorf("the error does not name %s: %v", e.Dir, err)
			}
		})
	}
}

func urlList(list []url.URL) string {
	words := make([]string, len(list))
	for i, u := range list {
		words[i] = u.String()
	}
	return strings.Join(words, ",")
}

func wal(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "member/wal/*-*.wal"))
	if err != nil || len(found) == 0 {
		t.Fatal("no log", err)
	}
	return found[0]
}

func garble(t *testing.T, file string, from, to int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("\xa5", int(to-from))), from); err != nil {
		t.Fatal(err)
	}
}

// changeLength changes the length of one of a log's records. Each record has its length before it, and in the highest byte of that how
// many bytes follow it up to a multiple of eight (etcd's storage/wal/encoder.go).
func changeLength(t *testing.T, file string, record int, change func(int64) int64) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at, n := int64(0), 0; at < int64(len(data)); n++ {
		length := int64(binary.LittleEndian.Uint64(data[at:]))
		if n == record {
			binary.LittleEndian.PutUint64(data[at:], uint64(change(length)))
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
		at += 8 + (length&(1<<56-1)+7)/8*8
	}
	t.Fatal("the log has not enough records")
}

func truncate(t *testing.T, file string, size int64) {
	t.Helper()
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("a file where a directory should be"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestArgs(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		err   string
		check func(*embed.Config) bool
	}{
		"none": {check: func(c *embed.Config) bool {
			return len(c.ListenPeerUrls) == 0 && c.InitialCluster == "n1=http://127.0.0.1:2380" && c.TickMs == 100 &&
				c.LogLevel == "info" && len(c.ListenClientUrls) == 1
		}},
		"quota": {args: []string{"quota-backend-bytes=4294967296", "--auto-compaction-retention=1h"},
			check: func(c *embed.Config) bool {
				return c.QuotaBackendBytes == 4<<30 && c.AutoCompactionRetention == "1h"
			}},
		"metrics": {args: []string{"listen-metrics-urls=http://127.0.0.1:2381"},
			check: func(c *embed.Config) bool { return len(c.ListenMetricsUrls) == 1 }},
		"one more client url": {args: []string{"listen-client-urls=http://127.0.0.1:2379"},
			check: func(c *embed.Config) bool { return len(c.ListenClientUrls) == 2 }},
		"ours":    {args: []string{"data-dir=/x"}, err: `coracle itself decides etcd's "data-dir": remove --etcd-arg data-dir=/x`},
		"unknown": {args: []string{"quota=1"}, err: `etcd has no flag "quota": correct or remove --etcd-arg quota=1`},
		"bad":     {args: []string{"quota-backend-bytes=many"}, err: "setting --etcd-arg quota-backend-bytes=many"},
		"bad url": {args: []string{"listen-metrics-urls=x"}, err: "setting --etcd-arg listen-metrics-urls=x"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := (&Etcd{Name: "n1", Dir: "/d", Socket: "/s/etcd.sock", Volatile: true, Args: c.args}).config(nil)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !c.check(cfg) || !cfg.UnsafeNoFsync {
				t.Errorf("got %+v", cfg)
			}
		})
	}
}

// TestConfig shows in the diff of a change what etcd is told.
func TestConfig(t *testing.T) {
	c, err := (&Etcd{Name: "n1", Dir: "/var/lib/coracle/server/etcd", Socket: "/run/coracle/etcd.sock"}).config(nil)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf(`name: %s
data-dir: %s
listen-client-urls: %s
advertise-client-urls: %s
listen-peer-urls: %s
initial-advertise-peer-urls: %s
initial-cluster: %s
heartbeat-interval: %d
election-timeout: %d
snapshot-count: %d
snapshot-catchup-entries: %d
backend-batch-interval: %s
backend-batch-limit: %d
quota-backend-bytes: %d
enable-grpc-gateway: %t
`, c.Name, c.Dir, urlList(c.ListenClientUrls), urlList(c.AdvertiseClientUrls), urlList(c.ListenPeerUrls),
		urlList(c.AdvertisePeerUrls), c.InitialCluster, c.TickMs, c.ElectionMs, c.SnapshotCount, c.SnapshotCatchUpEntries,
		c.BackendBatchInterval, c.BackendBatchLimit, c.QuotaBackendBytes, c.EnableGRPCGateway)
	golden.Check(t, "testdata/plain.golden", got)
	e := &Etcd{Name: "n1", Dir: "/var/lib/coracle/server/etcd", Socket: "/run/coracle/etcd.sock", TLS: TLS{CA: "/pki/ca.crt", Cert: "/pki/peer.crt", Key: "/pki/peer.key"},
		Args: []string{"listen-client-urls=https://0.0.0.0:2379", "client-cert-auth", "quota-backend-bytes=16777216", "snapshot-count=9"}}
	if c, err = e.config(nil); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/flags.golden", lines(flags(c, e.Args)))
}

func lines(flags [][2]string) string {
	var b strings.Builder
	for _, kv := range flags {
		fmt.Fprintf(&b, "--%s=%s\n", kv[0], kv[1])
	}
	return b.String()
}
