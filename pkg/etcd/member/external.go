package member

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// External is the component for an external etcd. It waits until the etcd answers, and reports why it does not.
type External struct {
	Store config.Datastore
	// Cluster returns an identity of this server's cluster, the hash of its CA. The datastore keeps the first one, so that two clusters
	// cannot use the same data.
	Cluster func() (string, error)
}

// Run is ready when a key can be read. Afterwards kube-apiserver checks the datastore itself.
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
	if err := e.claim(ctx, tlsConfig); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return nil
}

// errOthers is the error if the data belongs to another cluster.
var errOthers = errors.New("another cluster keeps its data there")

// claim records the cluster in the datastore. It fails if another cluster is recorded.
func (e External) claim(ctx context.Context, tlsConfig *tls.Config) error {
	own, err := e.Cluster()
	if err != nil {
		return err
	}
	try, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	client, err := e.client(try, tlsConfig)
	if err != nil {
		return err
	}
	defer client.Close()
	key := e.Store.Prefix + "/coracle.io/cluster"
	// In two steps and in this form, as kube-apiserver creates objects: shims such as kine support no other transactions.
	made, err := client.Txn(try).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, own)).Commit()
	if err != nil {
		return fmt.Errorf("recording the cluster in the datastore: %w", err)
	}
	if made.Succeeded {
		return nil
	}
	got, err := client.Get(try, key)
	if err != nil {
		return fmt.Errorf("reading the cluster of the datastore: %w", err)
	}
	if len(got.Kvs) == 0 || string(got.Kvs[0].Value) == own {
		return nil
	}
	return fmt.Errorf("using the datastore at %s with prefix %s: %w: to join that cluster, give this server --server and a token; "+
		"to begin another one, give it another --datastore-prefix", strings.Join(e.Store.Endpoints, ", "), e.Store.Prefix, errOthers)
}

// tls returns the TLS configuration, nil if no endpoint uses TLS.
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
		// Read again for each connection, as kube-apiserver does: somebody else renews them.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(e.Store.CertFile, e.Store.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("reading --datastore-certfile and --datastore-keyfile: %w", err)
			}
			return &pair, nil
		}
		if _, err := cfg.GetClientCertificate(nil); err != nil {
			return nil, err
		}
	}
	for _, endpoint := range e.Store.Endpoints {
		if strings.HasPrefix(endpoint, "https:") {
			return cfg, nil
		}
	}
	return nil, nil
}

// Dial connects to the datastore. The caller closes the client.
func (e External) Dial() (*clientv3.Client, error) {
	tlsConfig, err := e.tls()
	if err != nil {
		return nil, err
	}
	return e.client(context.Background(), tlsConfig)
}

func (e External) client(ctx context.Context, tlsConfig *tls.Config) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: e.Store.Endpoints, TLS: tlsConfig, Logger: zap.NewNop(),
		DialKeepAliveTime: keepAliveTime, DialKeepAliveTimeout: keepAliveTimeout,
	})
}

// A connection is asked whether it is alive still, as kube-apiserver asks its own: one that a firewall has forgotten says nothing.
const (
	keepAliveTime    = 30 * time.Second
	keepAliveTimeout = 10 * time.Second
)

// probeTimeout limits the read of a key. It leaves time to find the reason of a failure.
const probeTimeout = 2 * time.Second

// probe reads a key below the prefix, which needs a leader, and permission if etcd has users.
func (e External) probe(ctx context.Context, tlsConfig *tls.Config) error {
	try, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	client, err := e.client(try, tlsConfig)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err = client.Get(try, e.Store.Prefix+"/health"); err == nil {
		return nil
	}
	return errors.Join(e.reasons(ctx, tlsConfig, err)...)
}

// reasons returns an error for each endpoint. etcd's client returns only that the time is over.
func (e External) reasons(ctx context.Context, tlsConfig *tls.Config, err error) (all []error) {
	transport := &http.Transport{TLSClientConfig: tlsConfig}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: probeTimeout}
	for _, endpoint := range e.Store.Endpoints {
		if path, ok := strings.CutPrefix(endpoint, "unix://"); ok {
			conn, dialErr := net.Dial("unix", path)
			if dialErr != nil {
				all = append(all, dialErr)
				continue
			}
			conn.Close()
		} else if probeErr := fetch(ctx, client, endpoint+"/version"); probeErr != nil {
			all = append(all, probeErr)
			continue
		}
		all = append(all, fmt.Errorf("%s accepts connections, but does not answer reads: %w", endpoint, err))
	}
	return all
}

func fetch(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: is it to be https:// instead of http://?", err)
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
