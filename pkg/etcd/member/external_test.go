package member

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// foreign runs an etcd as others run it, with TLS both ways, and returns its URL.
func foreign(t *testing.T) string {
	t.Helper()
	files := certificate(t, "127.0.0.1")
	server, address, err := startForeign(t, files)
	for range 20 { // somebody else may take a port as soon as it is free
		if err == nil || !strings.Contains(err.Error(), "in use") {
			break
		}
		server, address, err = startForeign(t, files)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	<-server.Server.ReadyNotify()
	return address
}

func startForeign(t *testing.T, files TLS) (server *embed.Etcd, address string, err error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "https", Host: listener.Addr().String()}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.CA, ClientCertAuth: true}
	server, err = embed.StartEtcd(cfg)
	return server, cfg.ListenClientUrls[0].String(), err
}

func TestExternal(t *testing.T) {
	address := foreign(t)
	files := certificate(t, "127.0.0.1")
	other := filepath.Join(t.TempDir(), "other.crt")
	write(t, other)
	good := config.Datastore{Endpoints: []string{address}, CAFile: files.CA, CertFile: files.Cert, KeyFile: files.Key, Prefix: "/one"}
	for name, c := range map[string]struct {
		change func(*config.Datastore)
		fails  string // at once
		waits  string // and says so
	}{
		"good":                {change: func(*config.Datastore) {}},
		"one that is down":    {change: func(d *config.Datastore) { d.Endpoints = append([]string{"https://127.0.0.1:1"}, d.Endpoints...) }},
		"nobody there":        {change: func(d *config.Datastore) { d.Endpoints = []string{"https://127.0.0.1:1"} }, waits: "connection refused"},
		"no authority given":  {change: func(d *config.Datastore) { d.CAFile = "" }, waits: "certificate signed by unknown authority"},
		"no client's":         {change: func(d *config.Datastore) { d.CertFile, d.KeyFile = "", "" }, waits: "certificate required"},
		"no TLS":              {change: func(d *config.Datastore) { d.Endpoints[0] = strings.Replace(address, "https", "http", 1) }, waits: "is it to be https://"},
		"authority of nobody": {change: func(d *config.Datastore) { d.CAFile = other }, fails: "holds no certificate in PEM form"},
		"key of another":      {change: func(d *config.Datastore) { d.KeyFile = certificate(t, "127.0.0.1").Key }, fails: "reading --datastore-certfile and --datastore-keyfile"},
	} {
		t.Run(name, func(t *testing.T) {
			store := good
			store.Endpoints = []string{address}
			c.change(&store)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			told := make(chan string, 100)
			var g lifecycle.Group
			g.OnChange = func(units []lifecycle.Status) {
				if c.waits != "" && strings.Contains(units[0].Waiting, c.waits) {
					cancel()
				}
				told <- units[0].Waiting
			}
			g.Add("datastore", External{Store: store, Cluster: called("one")})
			ready := g.Ready()
			go func() {
				<-ready
				cancel()
			}()
			err := g.Run(ctx)
			if c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) || c.fails == "" && err != nil {
				t.Errorf("it ends with %v", err)
			}
			if context.Cause(ctx) == context.DeadlineExceeded {
				close(told)
				for text := range told {
					t.Log(text)
				}
				t.Error("neither ready nor waiting for the right thing")
			}
		})
	}
}

// TestExternalRenewed: a certificate that was renewed is used from the next connection on.
func TestExternalRenewed(t *testing.T) {
	files, renewed := certificate(t, "127.0.0.1"), certificate(t, "127.0.0.1")
	client, err := External{Store: config.Datastore{Endpoints: []string{"https://127.0.0.1:1"}, CertFile: files.Cert, KeyFile: files.Key}}.tls()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(renewed.Cert, files.Cert), os.Rename(renewed.Key, files.Key)); err != nil {
		t.Fatal(err)
	}
	want, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := client.GetClientCertificate(nil); err != nil || !got.Leaf.Equal(want.Leaf) {
		t.Errorf("the former certificate is used still, %v", err)
	}
}

func called(cluster string) func() (string, error) {
	return func() (string, error) { return cluster, nil }
}

func TestExternalOfAnotherCluster(t *testing.T) {
	address := foreign(t)
	files := certificate(t, "127.0.0.1")
	store := config.Datastore{Endpoints: []string{address}, CAFile: files.CA, CertFile: files.Cert, KeyFile: files.Key, Prefix: "/one"}
	use := func(cluster, prefix string) error {
		store := store
		store.Prefix = prefix
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		return External{Store: store, Cluster: called(cluster)}.Run(ctx, stop)
	}
	for _, c := range []struct {
		cluster, prefix string
		refused         bool
	}{{"first", "/one", false}, {"first", "/one", false}, {"second", "/one", true}, {"second", "/two", false}} {
		if err := use(c.cluster, c.prefix); errors.Is(err, errOthers) != c.refused || err != nil && !c.refused {
			t.Errorf("cluster %s at %s: %v", c.cluster, c.prefix, err)
		}
	}
}
