package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// probeTimeout bounds one try. A working server answers within milliseconds.
const probeTimeout = 2 * time.Second

// probeAPI connects to the API's port. The unit's own probe has seen the API answer.
func probeAPI(ctx context.Context, cfg config.Config) error {
	host := cfg.API.Bind
	if !host.IsValid() || host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	conn, err := dial(ctx, "tcp", host, cfg.API.Port)
	if err != nil {
		return fmt.Errorf("connecting to the API: %w", err)
	}
	return conn.Close()
}

// firstAnswer is how long probeDNS waits for the first answer, and twice as long for each further one. A query that was sent a moment before
// kube-proxy wrote the rules for the Service's endpoints is never answered.
const firstAnswer = 200 * time.Millisecond

// probeDNS asks the cluster's DNS Service for the records of the API's Service.
func probeDNS(ctx context.Context, cfg config.Config) error {
	if len(cfg.Network.DNS) == 0 || cfg.Disabled("kube-proxy") {
		return nil // no kube-proxy makes the Service's address answer
	}
	server := cfg.Network.DNS[0]
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network, server, 53) }}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for patience := firstAnswer; ; patience *= 2 {
		try, stop := context.WithTimeout(ctx, patience)
		_, _, err := r.LookupSRV(try, "https", "tcp", "kubernetes.default.svc."+cfg.Network.Domain+".")
		stop()
		if err == nil {
			return nil
		}
		if late, ok := errors.AsType[net.Error](err); !ok || !late.Timeout() || ctx.Err() != nil {
			return fmt.Errorf("asking %s: %w", server, err)
		}
	}
}

func dial(ctx context.Context, network string, host netip.Addr, port uint16) (net.Conn, error) {
	d := net.Dialer{Timeout: probeTimeout}
	return d.DialContext(ctx, network, netip.AddrPortFrom(host, port).String())
}
