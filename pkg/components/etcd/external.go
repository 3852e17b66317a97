package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/config"
	"github.com/coracle-dev/coracle/pkg/lifecycle"
)

// External stands for an etcd that somebody else runs. It starts nothing: it waits until the etcd answers, and tells
// meanwhile why it does not.
type External struct{ Store config.Datastore }

// Run is ready when a key can be read; nothing is watched afterwards, because kube-apiserver does that itself.
func (e External) Run(ctx context.Context, ready func()) error {
	tlsConfig, err := e.tls()
	if err != nil {
		return err
	}
	where := strings.Join(e.Store.Endpoints, ", ")
	told := ""
	err = lifecycle.Until(ctx, "the datastore at "+where, func(ctx context.Context) error {
		err := e.probe(ctx, tlsConfig)
		if err != nil && err.Error() != told {
			told = err.Error()
			logrus.WithField("component", "etcd").WithError(err).Warn("the datastore at " + where + " does not answer yet")
		}
		return err
	})
	if err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return nil
}

// tls is nil if no endpoint needs it.
func (e External) tls() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := e.Store.CAFile; file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading --datastore-cafile: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--datastore-cafile: %s holds no certificate in PEM form", file)
		}
	}
	if e.Store.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(e.Store.CertFile, e.Store.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading --datastore-certfile and --datastore-keyfile: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	for _, endpoint := range e.Store.Endpoints {
		if strings.HasPrefix(endpoint, "https:") {
			return cfg, nil
		}
	}
	return nil, nil
}

// probe reads a key below the prefix, which needs a leader and, where etcd has users, the right to do so.
func (e External) probe(ctx context.Context, tlsConfig *tls.Config) error {
	client, err := clientv3.New(clientv3.Config{Context: ctx, Endpoints: e.Store.Endpoints, TLS: tlsConfig, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Get(ctx, e.Store.Prefix+"/health")
	return err
}
