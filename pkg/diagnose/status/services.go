package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// Time limits for a Service: for one connection, for all attempts, and the pause between two. kube-proxy writes changes once a second, and an
// attempt may meet a server that is down.
const (
	dialTimeout    = 700 * time.Millisecond
	serviceTimeout = 2 * time.Second
	servicePause   = 100 * time.Millisecond
)

// Services returns a function that connects to the Services of the API and of DNS as pods do, by their addresses, and returns a sentence
// about each that does not answer. It connects to none that another program than coracle provides.
func Services(cfg config.Config) func(context.Context) []string {
	return services(cfg, (&net.Dialer{Timeout: dialTimeout}).DialContext)
}

func services(cfg config.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) func(context.Context) []string {
	type service struct {
		name    string
		address netip.AddrPort
	}
	var all []service
	if cidrs := cfg.Network.ServiceCIDRs; len(cidrs) > 0 && !cfg.Disabled("kube-proxy") {
		all = append(all, service{"kubernetes", netip.AddrPortFrom(cidrs[0].Masked().Addr().Next(), 443)})
		if len(cfg.Network.DNS) > 0 && !cfg.Disabled("dns") {
			all = append(all, service{clusterdns.Service, netip.AddrPortFrom(cfg.Network.DNS[0], 53)})
		}
	}
	return func(ctx context.Context) (out []string) {
		failed := make([]chan error, len(all))
		for i, s := range all {
			failed[i] = make(chan error, 1)
			go func() { failed[i] <- answers(ctx, s.address.String(), dial) }()
		}
		for i, s := range all {
			if err := <-failed[i]; err != nil {
				out = append(out, fmt.Sprintf("the Service %s does not answer at %s: %v", s.name, s.address, err))
			}
		}
		return out
	}
}

// answers returns why no connection to an address was accepted in time.
func answers(ctx context.Context, address string, dial func(ctx context.Context, network, address string) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	for {
		conn, err := dial(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		if lifecycle.Sleep(ctx, servicePause) != nil {
			return reasonOf(err)
		}
	}
}

// reasonOf removes the address, which the sentence has already.
func reasonOf(err error) error {
	var system *os.SyscallError
	switch {
	case errors.As(err, &system):
		return system.Err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("no answer in time")
	}
	return err
}
