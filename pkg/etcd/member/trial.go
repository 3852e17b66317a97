package member

import (
	"context"
	"fmt"
	"net/url"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/coracle-dev/coracle/pkg/core/throttle"
)

// Contents is what an etcd holds at a revision.
type Contents struct {
	Revision int64  `json:"revision"`
	Objects  int64  `json:"objects"` // the number of keys
	Sum      uint64 `json:"sum"`     // of the checksums of their values (see digest)
}

// Try makes an etcd of a backup's file in dir, as Restore does, starts it, and returns what it holds. It listens nowhere.
func Try(ctx context.Context, file, dir string, limit *throttle.Limit) (c Contents, err error) {
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
	now, _, err := life{server: member}.digests(ctx, 0)
	if err != nil {
		return c, fmt.Errorf("reading it: %w", err)
	}
	return Contents{now.revision, int64(now.keys), now.sum}, nil
}

const trialName = "trial"
