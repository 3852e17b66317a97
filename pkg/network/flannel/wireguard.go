package flannel

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/wireguard" // registers wireguard
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
)

// wireguard is the library's name of the backend wireguard-native.
const wireguard = "wireguard"

// wireguardOverhead is what the library's backend leaves for WireGuard in each packet, in bytes.
const wireguardOverhead = 80

// keyLifetime is how long a node uses a WireGuard key. The kernel negotiates the keys of packets anew every two minutes; this one only
// proves who the node is.
const keyLifetime = 30 * 24 * time.Hour

// errNoWireGuard is the error on a kernel without WireGuard.
var errNoWireGuard = errors.New("the kernel has no WireGuard: load the module wireguard (modprobe wireguard; Linux has it since 5.6), or choose --flannel-backend=vxlan")

// wireguardNetwork runs the backend with one key after another until ctx is done. register makes the device and returns the running network.
// For a new key the device is made again, so that connections to other nodes' pods stall for a moment. At the end it stays.
func (f Flannel) wireguardNetwork(ctx context.Context, register func(context.Context, *sync.WaitGroup) (backend.Network, error)) error {
	if err := os.Setenv("WIREGUARD_KEY_FILE", f.KeyFile); err != nil { // the library has no other way to name it
		return err
	}
	if err := removeLinks(footprint.VXLAN, footprint.VXLAN6); err != nil {
		return err
	}
	if err := removeStaleRoutes(f.ClusterCIDRs, nil); err != nil { // those of host-gw
		return err
	}
	for ctx.Err() == nil {
		left, err := ensureKey(f.KeyFile, time.Now())
		if err != nil {
			return err
		}
		if err := removeLinks(footprint.WireGuard, footprint.WireGuard6); err != nil { // or the library warns of it
			return err
		}
		// The library removes the device when the context of its registration is done.
		using, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, cancel)
		var running sync.WaitGroup
		network, err := register(using, &running)
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = errNoWireGuard
		}
		if err != nil {
			cancel()
			return err
		}
		stop()
		running.Go(func() { network.Run(using) })
		select {
		case <-ctx.Done():
		case <-time.After(left):
			cancel()
			running.Wait()
		}
	}
	return nil
}

// ensureKey makes a key unless there is one, and returns how long it may be used.
func ensureKey(file string, now time.Time) (time.Duration, error) {
	info, err := os.Stat(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("reading the WireGuard key: %w", err)
	}
	if err == nil {
		if left := keyLifetime - now.Sub(info.ModTime()); left > 0 {
			return min(left, keyLifetime), nil // the clock may have been set back
		}
	}
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return 0, fmt.Errorf("making a WireGuard key: %w", err)
	}
	if err := atomicfile.Write(file, []byte(base64.StdEncoding.EncodeToString(key.Bytes())), 0o600); err != nil {
		return 0, fmt.Errorf("writing the WireGuard key: %w", err)
	}
	return keyLifetime, nil
}

// removeLinks removes network interfaces, with the routes through them.
func removeLinks(names ...string) error {
	for _, name := range names {
		link, err := netlink.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			continue
		}
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			return fmt.Errorf("removing the interface %s of an earlier start: %w", name, err)
		}
	}
	return nil
}
