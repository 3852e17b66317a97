package front

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/machine/host"
)

// live runs the child processes until ctx is done. When this machine has another address, it restarts them with that: certificates, etcd's
// membership, the kubelet, kube-proxy and the pod network take addresses at their start only. Pods keep running. What an agent may do with
// its new address, the API server decides as after any start.
func (f *front) live(ctx context.Context) error {
	for moves := 0; ; moves++ {
		life, end := context.WithCancel(ctx)
		context.AfterFunc(life, f.api.Close) // so that clients are refused when the control plane has stopped
		var moved config.Config
		var working sync.WaitGroup
		working.Go(func() { f.renew(life) })
		working.Go(func() {
			if moves > 2 && !pause(life, time.Minute) { // an address that comes and goes must not stop the machine's work all the time
				return
			}
			if now, ok := f.watchAddresses(life); ok {
				moved = now
				end()
			}
		})
		err := f.super.Run(life)
		end()
		f.api.Close() // also if it was lent once more during the stop
		working.Wait()
		if err != nil || ctx.Err() != nil {
			return err
		}
		logrus.Warnf("this machine's address is %s now, and was %s: restarting with it; pods go on running", moved.Node.IPs, f.cfg.Node.IPs)
		f.cfg.Node, f.cfg.API = moved.Node, moved.API
		f.super.Programs = f.programs()
		if err := f.certificates(); err != nil {
			return err
		}
		if err := f.writeResolved(); err != nil {
			return err
		}
	}
}

// watchAddresses returns the configuration with other addresses when the machine has them, and false when ctx is done before.
func (f *front) watchAddresses(ctx context.Context) (config.Config, bool) {
	if len(f.cfg.Node.Sources) == 0 {
		return f.cfg, false // they were given
	}
	changed, err := host.WatchAddresses(ctx)
	if err != nil {
		logrus.WithError(err).Warn("watching this machine's addresses: a change takes effect at the next start only")
		return f.cfg, false
	}
	return awaitMove(ctx, f.cfg, changed, config.Config.Moved)
}

// calm is how long addresses must not change before they count: DHCP and network managers remove and add them again.
const calm = time.Second

// outage is how long a network with a default route must be away before the node takes an address of another interface, with which it then stays: a router
// that starts again is back earlier.
const outage = time.Minute

// worse reports whether a node had an address with a default route, and has none with one now.
func worse(was, now config.Config) bool {
	for i, source := range was.Node.Sources {
		if source == config.RouteAddress && now.Node.Sources[i] != source {
			return true
		}
	}
	return false
}

// awaitMove waits until the addresses of the host are others than those of cfg, and stay so. It looks at once, because they may have changed
// since cfg was resolved, and after each message of changed. It returns false when ctx is done.
func awaitMove(ctx context.Context, cfg config.Config, changed <-chan struct{}, look look) (config.Config, bool) {
	var said []netip.Addr
	for {
		now, moved, lost := look(cfg)
		for waited := calm; moved; waited += calm {
			last := now.Node.IPs
			if !pause(ctx, calm) {
				return cfg, false
			}
			if now, moved, lost = look(cfg); moved && slices.Equal(now.Node.IPs, last) && (waited >= outage || !worse(cfg, now)) {
				return now, true
			}
		}
		cfg = now
		if len(lost) > 0 && !slices.Equal(lost, said) {
			logrus.Warnf("this machine has lost its address %s and has no other one that other machines could use: waiting for one", lost)
		}
		said = lost
		select {
		case <-ctx.Done():
			return cfg, false
		case <-changed: // pods cause many: one look for all of a second
			if !pause(ctx, calm) {
				return cfg, false
			}
		}
	}
}

// look is config.Config.Moved, which tests replace.
type look func(config.Config) (now config.Config, moved bool, lost []netip.Addr)

// pause waits. It returns false when ctx is done.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
