package front

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
	"github.com/coracle-dev/coracle/test/freeport"
)

// TestAPISocket: clients wait after the end of a control plane that has served, unless they know other servers or nodes have to see it.
func TestAPISocket(t *testing.T) {
	const served = supervise.Ready
	for name, tt := range map[string]struct {
		was    string // the control plane's state before it ended
		change func(*config.Config)
		waits  bool
	}{
		"alone":              {served, func(*config.Config) {}, true},
		"has never served":   {supervise.Starting, func(*config.Config) {}, false},
		"pools":              {served, func(c *config.Config) { c.Network.Pools = make([]config.Pool, 1) }, false},
		"MetalLB's pools":    {served, func(c *config.Config) { c.Network.MetalLB = true }, false},
		"a VIP":              {served, func(c *config.Config) { c.API.VIPs = make([]netip.Addr, 1) }, false},
		"joined":             {served, func(c *config.Config) { c.Join.Joined = true }, false},
		"another database":   {served, func(c *config.Config) { c.Datastore.Endpoints = []string{"https://192.0.2.1:2379"} }, false},
		"others have joined": {served, func(c *config.Config) { mark(t, c.Dirs.Joined()) }, false},
		"others join later":  {served, func(c *config.Config) { mark(t, c.Dirs.Joined()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			address := freeport.Loopback(t)
			cfg := config.Config{Dirs: paths.Dirs{Data: t.TempDir(), Run: t.TempDir()}}
			cfg.API.Bind, cfg.API.Port = address.Addr(), address.Port()
			later := name == "others join later"
			if !later {
				tt.change(&cfg)
			}
			var s apiSocket
			defer s.Close()
			s.mayWait = func() bool { return clientsWait(cfg) }
			lent := s.lend(cfg)
			if lent == nil {
				if tt.waits {
					t.Error("the control plane gets no socket")
				}
				return
			}
			if err := unix.Listen(int(lent.Fd()), 1); err != nil { // as the control plane does
				t.Fatal(err)
			}
			lent.Close()
			if later {
				tt.change(&cfg)
			}
			node := state.Child{Name: state.Node, State: supervise.Ready}
			for _, now := range []string{supervise.Starting, tt.was, supervise.Backoff, supervise.Backoff} {
				s.follow([]state.Child{{Name: state.ControlPlane, State: now}, node})
			}
			conn, err := net.Dial("tcp", address.String())
			if err == nil {
				conn.Close()
			}
			if waits := err == nil; waits != tt.waits {
				t.Errorf("clients wait: %t, %v", waits, err)
			}
		})
	}
}

func mark(t *testing.T, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOwnListener: an API server that is told to listen elsewhere gets no socket, and nobody listens in its place.
func TestOwnListener(t *testing.T) {
	cfg := config.Config{Dirs: paths.Dirs{Data: t.TempDir(), Run: t.TempDir()}}
	cfg.API.Bind, cfg.API.Port = netip.MustParseAddr("127.0.0.1"), 16443
	for arg, gets := range map[string]bool{"v=2": true, "bind-address=127.0.0.1": false, "secure-port=7443": false, "permit-port-sharing": false} {
		cfg.Args = map[string][]string{"kube-apiserver": {"profiling=true", arg}}
		var s apiSocket
		if got := s.lend(cfg) != nil; got != gets {
			t.Errorf("%s: it gets one: %t", arg, got)
		}
		s.Close()
	}
}
