// Package aggregation is the example of docs/extending/aggregation.md: an API server of its own behind the cluster's.
package aggregation

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/sample-apiserver/pkg/cmd/server"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestMain is the test, or a server in the image of the test: upstream's sample-apiserver, and an etcd for it.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch what := os.Args[1]; what {
	case "sample-apiserver":
		os.Args = os.Args[1:]
		os.Exit(cli.Run(server.NewCommandStartWardleServer(ctx, server.NewWardleServerOptions(os.Stdout, os.Stderr), false)))
	case "etcd":
		if err := runEtcd(ctx, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runEtcd serves an etcd of one member on loopback, with its data in a directory.
func runEtcd(ctx context.Context, dir string) error {
	config := embed.NewConfig()
	config.Dir, config.LogLevel = dir, "warn"
	loopback := func(port string) []url.URL { return []url.URL{{Scheme: "http", Host: "127.0.0.1:" + port}} }
	config.ListenClientUrls, config.AdvertiseClientUrls = loopback("2379"), loopback("2379")
	config.ListenPeerUrls, config.AdvertisePeerUrls = loopback("2380"), loopback("2380")
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	e, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case err := <-e.Err():
		return err
	case <-ctx.Done():
		return nil
	}
}

// TestAggregation adds an API with its own store to a cluster, and uses it with and without rights.
func TestAggregation(t *testing.T) {
	image := cluster.Image(t, "wardle.test/server:1", "sample-apiserver")
	c := cluster.Start(t, "aggregation", cluster.Options{Archives: []string{image}})
	for _, heading := range []string{"The server", "Who may use it", "After a restart"} {
		c.Space(t).Play(t, heading)
	}
}
