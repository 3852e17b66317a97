package member

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// Contents is what an etcd holds at a revision.
type Contents struct {
	Revision int64 `json:"revision"`
	// Objects is the number of keys, and Hash etcd's hash of all revisions from Compacted on.
	Objects   int64  `json:"objects"`
	Hash      uint32 `json:"hash"`
	Compacted int64  `json:"compacted"`
}

// contentsTimeout bounds the reading of all entries.
const contentsTimeout = 2 * time.Minute

// ContentsAt returns what the running member holds at a revision.
func ContentsAt(ctx context.Context, socket string, revision int64) (c Contents, err error) {
	ctx, cancel := context.WithTimeout(ctx, contentsTimeout)
	defer cancel()
	endpoint := "unix://" + socket
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return c, err
	}
	defer client.Close()
	count, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly(), clientv3.WithRev(revision))
	if err != nil {
		return c, fmt.Errorf("counting etcd's keys: %w", err)
	}
	hash, err := client.HashKV(ctx, endpoint, revision)
	if err != nil {
		return c, fmt.Errorf("asking etcd for its hash: %w", err)
	}
	return Contents{revision, count.Count, hash.Hash, hash.CompactRevision}, nil
}

// Try makes an etcd of a backup's file in dir, as Restore does, starts it, and returns what it holds at the revision. It listens nowhere.
func Try(ctx context.Context, file, dir string, revision int64, limit *throttle.Limit) (c Contents, err error) {
	if err := restore(file, dir, trialName, 0, limit); err != nil {
		return c, err
	}
	fatal := make(chan error, 1)
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = trialName, dir
	quiet := logrus.New()
	quiet.SetLevel(logrus.FatalLevel)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger(quiet, fatal))
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2379"}} // a member needs some
	cfg.UnsafeNoFsync = true
	cfg.EnableGRPCGateway = false
	running := make(chan error, 1)
	var member *embed.Etcd
	go func() { // a fatal line ends only this goroutine
		var err error
		member, err = embed.StartEtcd(cfg)
		running <- err
	}()
	select {
	case err = <-running:
	case err = <-fatal:
	case <-ctx.Done():
		return c, context.Cause(ctx)
	}
	if err != nil {
		return c, fmt.Errorf("starting an etcd with it: %w", err)
	}
	defer member.Close()
	select {
	case <-member.Server.ReadyNotify():
	case err := <-fatal:
		return c, fmt.Errorf("starting an etcd with it: %w", err)
	case <-ctx.Done():
		return c, context.Cause(ctx)
	}
	count, err := member.Server.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, CountOnly: true, Revision: revision, Serializable: true})
	if err != nil {
		return c, fmt.Errorf("counting its keys: %w", err)
	}
	hash, current, err := member.Server.KV().HashStorage().HashByRev(revision)
	if err == nil && current < revision {
		err = errors.New("its last revisions are missing")
	}
	if err != nil {
		return c, fmt.Errorf("hashing it: %w", err)
	}
	return Contents{revision, count.Count, hash.Hash, hash.CompactRevision}, nil
}

const trialName = "trial"
