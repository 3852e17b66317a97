package members

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// connectTimeout limits the connection and the TLS handshake, each. A frozen server accepts connections and does not answer.
const connectTimeout = 2 * time.Second

// newClient returns a client for servers with certificates of an authority. It uses no proxy, because the servers are in the cluster.
func newClient(caFile, certFile, keyFile string) (*http.Client, error) {
	pool, err := certutil.NewPool(caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority %s: %w", caFile, err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading this server's certificate: %w", err)
	}
	return &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout: connectTimeout,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}},
	}}, nil
}

// Answers reports whether a member answers other members at one of the URLs.
func (m *Members) Answers(ctx context.Context, peerURLs []string) bool {
	client, err := newClient(m.CA, m.Cert, m.Key)
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 2*connectTimeout)
	defer cancel()
	for _, url := range peerURLs {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/version", nil)
		if err != nil {
			continue
		}
		resp, err := client.Do(req)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return true
		}
	}
	return false
}
