package localcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/network/tcpbalancer"
)

// balance serves the API of several servers at one address, the bridge's.
func (h *holder) balance(ctx context.Context) error {
	servers := h.record.servers()
	if len(servers) == 1 {
		return nil
	}
	var listener net.Listener
	err := h.net.wire.On(func() (err error) {
		listener, err = net.Listen("tcp", h.record.API().String())
		return err
	})
	if err != nil {
		return fmt.Errorf("listening for the API's clients: %w", err)
	}
	o := tcpbalancer.Options{TLS: h.apiTLS}
	for _, s := range servers {
		o.Listed = append(o.Listed, netip.AddrPortFrom(s.IP, apiPort).String())
	}
	go func() {
		if err := tcpbalancer.New(o).Serve(ctx, listener); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "balancing the API:", err)
		}
	}()
	return nil
}

// apiTLS trusts the cluster's servers.
func (h *holder) apiTLS() (*tls.Config, error) {
	dirs := paths.Dirs{Data: h.store.host(h.record.Name, h.record.Nodes[0].Name, "data")}
	data, err := os.ReadFile(dirs.PKI() + "/ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, errors.New("the cluster's CA certificate is damaged")
	}
	return &tls.Config{RootCAs: pool, ServerName: "kubernetes", MinVersion: tls.VersionTLS12}, nil
}
