package kube

import (
	"crypto/tls"
	"fmt"

	certutil "k8s.io/client-go/util/cert"
)

// NodeTLS returns how a node connects to servers, with the files of the CA of servers, and of the node's client certificate and key. They are read anew for
// each connection, because certificates are renewed.
func NodeTLS(ca, cert, key string) (*tls.Config, error) {
	roots, err := certutil.NewPool(ca)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's CA %s: %w", ca, err)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("reading the node's certificate: %w", err)
	}
	// Every server's certificate is valid for loopback, but perhaps not for the name by which the node reaches the server.
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1"}, nil
}
