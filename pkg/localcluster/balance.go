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

// balance makes the API of several servers reachable at one address, the wire's.
func (k *keeper) balance(ctx context.Context) error {
	servers := k.record.servers()
	if len(servers) == 1 {
		return nil
	}
	var listener net.Listener
	err := k.net.wire.On(func() (err error) {
		listener, err = net.Listen("tcp", k.record.API().String())
		return err
	})
	if err != nil {
		return fmt.Errorf("listening for the API's clients: %w", err)
	}
	o := tcpbalancer.Options{TLS: k.apiTLS}
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
func (k *keeper) apiTLS() (*tls.Config, error) {
	dirs := paths.Dirs{Data: k.store.host(k.record.Name, k.record.Nodes[0].Name, "data")}
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
