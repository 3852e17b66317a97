package front

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/heldsocket"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/core/supervise"
)

// apiSocket is the socket of the API, which the front holds while the control plane is restarted.
type apiSocket struct {
	heldsocket.Holder
	mayWait func() bool // whether clients may, set before the control plane is started
	// What follow saw last, which is called once at a time: the control plane was ready, or has ended.
	served, ended bool
}

// ownListener are kube-apiserver's flags with which it makes a listener of its own.
var ownListener = []string{"bind-address", "secure-port", "permit-address-sharing", "permit-port-sharing"}

// lend gives the next instance of the control plane the socket. It returns nil if the API server makes its own.
func (s *apiSocket) lend(cfg config.Config) *os.File {
	own := func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains(ownListener, name)
	}
	if slices.ContainsFunc(cfg.Args["kube-apiserver"], own) || !clientsWait(cfg) {
		s.Close()
		return nil
	}
	file, err := s.Lend(netip.AddrPortFrom(cfg.API.Bind, cfg.API.Port))
	if err != nil {
		logrus.Debugf("the control plane listens by itself: %v", err) // and says why it cannot
	}
	return file
}

// follow takes the states of the child processes. Clients wait for the next control plane if the last one has served.
func (s *apiSocket) follow(all []state.Child) {
	for _, c := range all {
		if c.Name != state.ControlPlane {
			continue
		}
		ended := c.State == supervise.Backoff
		if ended && !s.ended {
			s.Ended(s.served && s.mayWait())
		}
		s.served, s.ended = c.State == supervise.Ready, ended
	}
}

// clientsWait reports whether clients of the API may wait while the control plane is restarted. Where they know other servers they turn to those at once,
// and where servers vote on addresses, nodes have to see that a server does not run.
func clientsWait(cfg config.Config) bool {
	voted := len(cfg.Network.Pools) > 0 || cfg.Network.MetalLB || len(cfg.API.VIPs) > 0
	return !voted && join.Alone(cfg)
}
