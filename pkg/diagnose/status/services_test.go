package status

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

func TestServices(t *testing.T) {
	cfg := config.Config{}
	cfg.Network.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}
	cfg.Network.DNS = []netip.Addr{netip.MustParseAddr("10.43.0.10")}
	const api, dns = "10.43.0.1:443", "10.43.0.10:53"
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	late := func(ctx context.Context) error { <-ctx.Done(); return &net.OpError{Op: "dial", Err: ctx.Err()} }
	for name, c := range map[string]struct {
		dial    func(ctx context.Context, address string, try int) error
		disable []string
		asked   int
		want    []string
	}{
		"both answer":           {dial: func(context.Context, string, int) error { return nil }, asked: 2},
		"none answers in time":  {dial: func(ctx context.Context, _ string, _ int) error { return late(ctx) }, asked: 2, want: []string{"the Service kubernetes does not answer at 10.43.0.1:443: no answer in time", "the Service kube-dns does not answer at 10.43.0.10:53: no answer in time"}},
		"other programs' DNS":   {dial: func(ctx context.Context, _ string, _ int) error { return late(ctx) }, disable: []string{"dns"}, asked: 1, want: []string{"the Service kubernetes does not answer at 10.43.0.1:443: no answer in time"}},
		"other programs' proxy": {disable: []string{"kube-proxy"}},
		"one is refused":        {dial: func(_ context.Context, address string, _ int) error { return map[string]error{dns: refused}[address] }, asked: 2, want: []string{"the Service kube-dns does not answer at 10.43.0.10:53: connection refused"}},
		"rules come soon": {dial: func(_ context.Context, address string, try int) error {
			if address == api && try < 5 {
				return refused
			}
			return nil
		}, asked: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg.Disable = c.disable
				asked := map[string]int{}
				turn := make(chan struct{}, 1)
				began := time.Now()
				got := services(cfg, func(ctx context.Context, _, address string) (net.Conn, error) {
					turn <- struct{}{}
					try := asked[address]
					asked[address]++
					<-turn
					if err := c.dial(ctx, address, try); err != nil {
						return nil, err
					}
					conn, _ := net.Pipe()
					return conn, nil
				})(t.Context())
				if !slices.Equal(got, c.want) || len(asked) != c.asked || time.Since(began) > serviceTimeout {
					t.Errorf("it says %q after %s, having asked %v", got, time.Since(began), asked)
				}
			})
		})
	}
}

// TestServicesMatter: what is ready otherwise is not while a Service does not answer, or the disk is full.
func TestServicesMatter(t *testing.T) {
	dirs := paths.Dirs{Data: "/nowhere", Run: t.TempDir()}
	for _, p := range tell(nil) {
		if err := state.Write(dirs, p); err != nil {
			t.Fatal(err)
		}
	}
	from := Sources{Dirs: dirs, Config: config.Config{Role: config.Server},
		Services: func(context.Context) []string { return []string{"the Service kube-dns does not answer"} },
		usage:    func(int) (usage, error) { return usage{}, nil }, alive: func(state.Process) bool { return true }}
	for _, c := range []struct {
		err    error
		health Health
		lines  int
	}{{nil, Degraded, 1}, {errors.New("the API does not answer in time"), Degraded, 1}} {
		from.Node = func(context.Context) (*Node, error) { return goodNode, c.err }
		if c.err != nil { // the Services need not answer then
			from.Node = func(context.Context) (*Node, error) { return nil, c.err }
		}
		r, err := Collect(t.Context(), from)
		if err != nil || r.Health != c.health || len(r.Reasons) != c.lines {
			t.Errorf("%v: %s %q (%v)", c.err, r.Health, r.Reasons, err)
		}
	}
	from.Node, from.Services = func(context.Context) (*Node, error) { return goodNode, nil }, nil
	from.Disk = func() []string { return []string{"no space is left: make room"} }
	if r, err := Collect(t.Context(), from); err != nil || r.Health != Degraded || len(r.Reasons) != 1 {
		t.Errorf("with a full disk: %s %q (%v)", r.Health, r.Reasons, err)
	}
}
