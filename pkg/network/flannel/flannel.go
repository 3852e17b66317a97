// Package flannel sets up this node's part of the pod network: the bridge of the pods, the subnet file for the CNI plugin, masquerading
// of traffic that leaves the pod network, and routes to the pods of other nodes. Routes and masquerading are the flannel library's.
package flannel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw" // registers host-gw
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"  // registers vxlan
	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
	"github.com/sirupsen/logrus"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/footprint"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/pkg/network/nft"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
	"github.com/coracle-dev/coracle/pkg/network/portguard"
)

// Flannel is the component.
type Flannel struct {
	Node *kube.OwnNode
	Own  string // kubeconfig with permission to change the node's own status
	// OwnReady is closed when Own can be used; nil is at once. A node that had a subnet before can attach pods earlier.
	OwnReady     <-chan struct{}
	All          string // kubeconfig with permission to list and watch all nodes
	Backend      string // vxlan, host-gw or wireguard-native
	IPs          []netip.Addr
	Iface        string // "" is the interface with the first IP
	ClusterCIDRs []netip.Prefix
	// NoteRules is called with the name of an nft chain of another program before rules are added to it.
	NoteRules func(chain string) error

	ConfigFile string // flannel's own configuration, which Run writes
	SubnetFile string // for the CNI plugin, see package podsubnet
	KeyFile    string // WireGuard's key, which should not survive a reboot
	MemoryFile string // remembers the node's subnet across reboots, for a start without the API
	Bridge     string // cni0
}

// Run works until ctx is done. It is ready when pods can be attached and reach everything. Bridge, routes and rules stay.
func (f Flannel) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "flannel")
	go f.guardPorts(ctx)
	config, err := f.write(ctx)
	if err != nil {
		return err
	}
	masquerade, err := prepareMasquerade(ctx, config)
	if err != nil {
		return err
	}
	link, err := f.external()
	if err != nil {
		return err
	}
	a := attachment{Flannel: f, link: link, masquerade: masquerade}
	if err := a.settle(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	defer f.openFirewall(ctx)()
	ready()
	warnOfLegacyFirewall(ctx, f.ClusterCIDRs)
	if loopback(link) {
		logrus.WithField("component", "flannel").Info("the node has a loopback address only: no routes to other nodes")
		<-ctx.Done()
		return nil
	}
	if f.OwnReady != nil {
		select {
		case <-f.OwnReady:
		case <-ctx.Done():
			return nil
		}
	}
	return f.routes(ctx, config, link)
}

// guardPorts holds pods to their own addresses, now and whenever another program has deleted the table for it, until ctx is done.
func (f Flannel) guardPorts(ctx context.Context) {
	restore := func() {
		for pause := wireRetryMin; ctx.Err() == nil; pause = min(2*pause, wireRetryMax) {
			err := portguard.Restore(footprint.CNIResults, f.Bridge)
			if err == nil {
				return
			}
			logrus.WithField("component", "flannel").WithError(err).Warn("pods of this node may send with the addresses of other pods")
			if nft.Unsupported(err) {
				return
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
	restore()
	if err := nft.WatchDeleted(ctx, footprint.PortTable, restore); err != nil {
		logrus.WithField("component", "flannel").WithError(err).Warnf("deletions of nft table %s are not noticed", footprint.PortTable)
	}
}

// write reports flannel's configuration, writes it to a file, which is for information only, and returns it as the library parses it.
func (f Flannel) write(ctx context.Context) (*subnet.Config, error) {
	data, err := json.MarshalIndent(f.settings(), "", "  ")
	if err != nil {
		return nil, err
	}
	lifecycle.RunsWith(ctx, state.Settings{Config: data})
	if err := atomicfile.Write(f.ConfigFile, append(data, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("writing flannel's configuration: %w", err)
	}
	config, err := subnet.ParseConfig(string(data))
	if err != nil {
		return nil, fmt.Errorf("reading flannel's configuration: %w", err)
	}
	return config, nil
}

// settings is the content of flannel's configuration file.
type settings struct {
	Network        string `json:",omitempty"`
	IPv6Network    string `json:",omitempty"`
	EnableIPv4     bool
	EnableIPv6     bool
	EnableNFTables bool
	Backend        struct{ Type string }
}

func (f Flannel) settings() settings {
	s := settings{EnableNFTables: true}
	s.Backend.Type = strings.TrimSuffix(f.Backend, "-native")
	for _, cidr := range f.ClusterCIDRs {
		if cidr.Addr().Is4() {
			s.EnableIPv4, s.Network = true, cidr.String()
		} else {
			s.EnableIPv6, s.IPv6Network = true, cidr.String()
		}
	}
	return s
}

// prepareMasquerade makes flannel's nft tables, which takes a while, and returns a function that fills them once the node has a subnet.
func prepareMasquerade(ctx context.Context, config *subnet.Config) (func(podsubnet.Subnet) error, error) {
	tables := &nftables.NFTablesManager{}
	if err := tables.Init(ctx); err != nil {
		return nil, fmt.Errorf("making flannel's nft tables: %w", err)
	}
	return func(s podsubnet.Subnet) error {
		own := &lease.Lease{EnableIPv4: config.EnableIPv4, EnableIPv6: config.EnableIPv6}
		own.Subnet, own.IPv6Subnet = flannelNets(s.PodCIDRs)
		const unused = 0 // the resync period of iptables rules
		if err := tables.SetupAndEnsureMasqRules(ctx, config.Network, own.Subnet, config.Network,
			config.IPv6Network, own.IPv6Subnet, config.IPv6Network, own, unused, false); err != nil {
			return fmt.Errorf("masquerading what leaves the pod network: %w", err)
		}
		tables.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, unused)
		return nil
	}, nil
}

// routes keeps the routes to the pods of other nodes until ctx is done.
func (f Flannel) routes(ctx context.Context, config *subnet.Config, link *backend.ExternalInterface) error {
	own, err := kube.Client(f.Own)
	if err != nil {
		return err
	}
	all, err := kube.Client(f.All)
	if err != nil {
		return err
	}
	if err := kube.AwaitAPI(ctx, f.All, f.Node.Name); err != nil {
		return err // the role comes with coracle's manifests, which are applied while the node starts
	}
	subnets := &manager{config: config, cidrs: f.ClusterCIDRs, node: f.Node, own: own, all: all}
	if config.BackendType != "host-gw" {
		subnets.wire = newWire(f.Bridge, f.ClusterCIDRs)
		subnets.guard(ctx)
	}
	register := func(ctx context.Context, running *sync.WaitGroup) (backend.Network, error) {
		be, err := backend.NewManager(ctx, subnets, link).GetBackend(config.BackendType)
		if err != nil {
			return nil, fmt.Errorf("choosing the backend %s: %w", f.Backend, err)
		}
		network, err := be.RegisterNetwork(ctx, running, config)
		if err != nil {
			return nil, fmt.Errorf("setting up %s on %s: %w", f.Backend, link.IfaceName, err)
		}
		return network, nil
	}
	if config.BackendType == wireguard {
		return f.wireguardNetwork(ctx, register)
	}
	if err := removeLinks(footprint.WireGuard, footprint.WireGuard6); err != nil {
		return err
	}
	var running sync.WaitGroup
	network, err := register(ctx, &running)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		network.Run(ctx)
		close(done)
	}()
	if config.BackendType == "vxlan" {
		ready := func() bool { // until the interface under them is back, the node goes on without
			_, err := f.external()
			return err == nil
		}
		if err := awaitOverlayGone(ctx, ready, footprint.VXLAN, footprint.VXLAN6); err != nil {
			return err
		}
	}
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(time.Second): // not every backend returns; the process ends soon
	}
	return nil
}

var errNoIface = errors.New("no network interface has it; give the right one with --node-ip or --flannel-iface")
