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

// connectTimeout is for each of the connection and the handshake. A frozen server accepts connections, and says nothing.
const connectTimeout = 2 * time.Second

// newClient makes a client for servers of the authority whose certificate is in the file. There is no proxy: all is
// inside the cluster.
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

// Answers reports whether a member runs at one of the URLs and talks to other members.
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
