// Package flannel gives this node its part of the pod network: the bridge that pods are attached to, the subnet
// file from which the CNI plugin takes addresses, masquerading of what leaves the pod network, and routes to the
// pods of the other nodes, which is what the flannel library does.
package flannel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
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
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/podsubnet"
)

// Flannel is a node's pod network.
type Flannel struct {
	Node *kube.OwnNode
	Own  string // kubeconfig of the node: it may change its own status
	// OwnReady is closed when Own can be used; nil is at once. Pods can be attached earlier, on a node that had a subnet before.
	OwnReady     <-chan struct{}
	All          string // kubeconfig of somebody who may list and watch all nodes
	Backend      string // vxlan or host-gw
	IPs          []netip.Addr
	Iface        string // "" is the one that has the first IP
	ClusterCIDRs []netip.Prefix
	// NoteRules is told the name of an nft chain of others before rules are added to it.
	NoteRules func(chain string) error

	ConfigFile string // flannel's own configuration, which is generated
	SubnetFile string // what the CNI plugin reads
	MemoryFile string // remembers the node's subnet over a reboot, for a start without an API
	Bridge     string // cni0
}

// Run works until ctx is done. It is ready when pods can be attached and reach everything; what is set up stays.
func (f Flannel) Run(ctx context.Context, ready func()) error {
	ctx = kube.WithComponent(ctx, "flannel")
	config, err := f.write()
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
	defer f.passFirewall(ctx)()
	ready()
	warnOfDrop(ctx, f.ClusterCIDRs)
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

// write writes flannel's configuration file, for people to read, and returns it as the library has it.
func (f Flannel) write() (*subnet.Config, error) {
	data, err := json.MarshalIndent(f.settings(), "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(f.ConfigFile), 0o755); err != nil {
		return nil, err
	}
	if err := atomicfile.Write(f.ConfigFile, append(data, '\n'), 0o644); err != nil {
		return nil, fmt.Errorf("writing flannel's configuration: %w", err)
	}
	config, err := subnet.ParseConfig(string(data))
	if err != nil {
		return nil, fmt.Errorf("reading flannel's configuration: %w", err)
	}
	return config, nil
}

// settings is flannel's configuration as a file has it.
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
	s.Backend.Type = f.Backend
	for _, cidr := range f.ClusterCIDRs {
		if cidr.Addr().Is4() {
			s.EnableIPv4, s.Network = true, cidr.String()
		} else {
			s.EnableIPv6, s.IPv6Network = true, cidr.String()
		}
	}
	return s
}

// prepareMasquerade makes flannel's nft tables, which takes a while, and returns what fills them once the node has a
// subnet.
func prepareMasquerade(ctx context.Context, config *subnet.Config) (func(podsubnet.Subnet) error, error) {
	tables := &nftables.NFTablesManager{}
	if err := tables.Init(ctx); err != nil {
		return nil, fmt.Errorf("making flannel's nft tables: %w", err)
	}
	return func(s podsubnet.Subnet) error {
		own := &lease.Lease{EnableIPv4: config.EnableIPv4, EnableIPv6: config.EnableIPv6}
		own.Subnet, own.IPv6Subnet = flannelNets(s.PodCIDRs)
		const unused = 0 // how often iptables rules would be put back
		if err := tables.SetupAndEnsureMasqRules(ctx, config.Network, own.Subnet, config.Network,
			config.IPv6Network, own.IPv6Subnet, config.IPv6Network, own, unused, false); err != nil {
			return fmt.Errorf("masquerading what leaves the pod network: %w", err)
		}
		tables.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, unused)
		return nil
	}, nil
}

// routes keeps routes to the other nodes' pods until ctx is done.
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
		return err // its role is one of coracle's manifests, which are applied while the node starts
	}
	subnets := &manager{config: config, cidrs: f.ClusterCIDRs, node: f.Node, own: own, all: all}
	be, err := backend.NewManager(ctx, subnets, link).GetBackend(config.BackendType)
	if err != nil {
		return fmt.Errorf("choosing the backend %s: %w", f.Backend, err)
	}
	var running sync.WaitGroup
	network, err := be.RegisterNetwork(ctx, &running, config)
	if err != nil {
		return fmt.Errorf("setting up %s on %s: %w", f.Backend, link.IfaceName, err)
	}
	done := make(chan struct{})
	go func() {
		network.Run(ctx)
		close(done)
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(time.Second): // it does not end in every case; the process does
	}
	return nil
}

var errNoIface = errors.New("no network interface has it; give the right one with --node-ip or --flannel-iface")
