// Package etcd runs the embedded etcd: a cluster of one member that listens on a unix socket only.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// Etcd is the component.
type Etcd struct {
	Dir    string   // data directory
	Socket string   // where clients connect; its directory exists
	Args   []string // pass-through settings, "name=value"
}

// Run serves clients until ctx is done.
func (e Etcd) Run(ctx context.Context, ready func()) error {
	fatal := make(chan error, 1)
	cfg, err := e.config(fatal)
	if err != nil {
		return err
	}
	// A socket left by a crash is nobody's: the front holds the lock of the data directory.
	if err := os.Remove(e.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the old socket: %w", err)
	}
	server, err := e.start(cfg, fatal)
	if err != nil {
		return err
	}
	campaign, stop := context.WithCancel(ctx)
	defer stop()
	go elect(campaign, server.Server) // beside what follows: it may not see that etcd has died
	select {
	case <-server.Server.ReadyNotify():
		if err := readOnce(ctx, server); err != nil {
			return e.explain(fmt.Errorf("reading a key: %w", err))
		}
		ready()
	case err := <-fatal:
		return e.explain(err)
	case err := <-server.Err():
		return e.explain(err)
	case <-ctx.Done():
	}
	select {
	case err := <-fatal:
		return e.explain(err)
	case err := <-server.Err():
		return e.explain(err)
	case <-ctx.Done():
		server.Close()
		return nil
	}
}

// start calls StartEtcd in a goroutine of its own, because etcd answers damaged files with a panic, or with a fatal
// log line, which ends the goroutine (see logger).
func (e Etcd) start(cfg *embed.Config, fatal <-chan error) (*embed.Etcd, error) {
	type result struct {
		server *embed.Etcd
		err    error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- result{err: fmt.Errorf("etcd panicked: %v", p)}
			}
		}()
		server, err := embed.StartEtcd(cfg)
		done <- result{server, err}
	}()
	select {
	case err := <-fatal:
		return nil, e.explain(err)
	case r := <-done:
		if r.err != nil {
			return nil, e.explain(r.err)
		}
		return r.server, nil
	}
}

// explain adds to an error of etcd where its data is and what can be done.
func (e Etcd) explain(err error) error {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrExist) {
		return fmt.Errorf("using the data in %s: %w", e.Dir, err)
	}
	return fmt.Errorf("%w; if the data in %s is damaged, put a backup in its place, or move it away to begin with an empty cluster", err, e.Dir)
}

// readOnce proves that the member has a leader and answers reads.
func readOnce(ctx context.Context, server *embed.Etcd) error {
	_, err := server.Server.Range(ctx, &pb.RangeRequest{Key: []byte("health")})
	return err
}

// config is what etcd is started with.
func (e Etcd) config(fatal chan<- error) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name = "coracle"
	cfg.Dir = e.Dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger(logrus.StandardLogger(), fatal))
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: e.Socket}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	// There is no peer, so nothing listens for one. The URL is only the member's identity: it must never change,
	// and so it does not contain an address of the host.
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2380"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	// Nobody needs heartbeats from a member that is alone, and elect does not wait for the timeout.
	cfg.TickMs, cfg.ElectionMs = 500, 2500
	// Entries of the log that were applied are only kept, in memory, for peers that lag behind.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 2000, 100
	// What was acknowledged is in the log. The database may follow in larger steps, which writes less: after a crash
	// the log is read from where the database is. The limit keeps a step short when there is much to write.
	cfg.BackendBatchInterval, cfg.BackendBatchLimit = 5*time.Second, 1000
	cfg.EnableGRPCGateway = false
	// kube-apiserver has one connection for each of some seventy kinds, nearly all of them idle.
	cfg.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ReadBufferSize(8 << 10), grpc.SharedWriteBuffer(true)}
	return cfg, e.override(cfg)
}
