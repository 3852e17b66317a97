// Package addon defines add-ons: services of coracle that --disable leaves out. An add-on describes itself in its
// own folder with one Addon; package pkg/addons has the table of all of them.
package addon

import (
	"context"
	"net/netip"

	"k8s.io/apiserver/pkg/admission"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// Addon is a row of the table. Only Name is required.
type Addon struct {
	// Name is what --disable takes, and the name of the probe of coracle doctor. Where k3s has the same service, it is
	// k3s's name.
	Name string
	// About names what the probe examines.
	About string
	// Manifest is YAML that is applied while the add-on is enabled. It may use the variables of package manifests.
	Manifest []byte
	// Report describes what the add-on reports; the zero value is for an add-on that reports nothing.
	Report state.Report
	// Unsupported returns why the add-on does not work with a configuration, "" if it does. It may be nil.
	Unsupported func(config.Config) string

	// ControlPlane returns the components that every server runs while the add-on is enabled. It may be nil.
	ControlPlane func(Server) []Component
	// Disabled replaces ControlPlane while the add-on is disabled. It may be nil.
	Disabled func(Server) []Component
	// Admission returns the add-on's plugin of the API server. It also runs while the add-on is disabled. It may be nil.
	Admission func(config.Config) *Admission
	// Node returns the components that every node runs while the add-on is enabled. It may be nil.
	Node func(Node) ([]Component, error)
	// DisabledNode removes what an earlier start left on this node while the add-on was enabled. It may be nil.
	DisabledNode func() error
}

// Enabled reports whether the add-on works with a configuration and is not disabled.
func (a Addon) Enabled(cfg config.Config) bool {
	return !cfg.Disabled(a.Name) && (a.Unsupported == nil || a.Unsupported(cfg) == "")
}

// Component is a component of an add-on.
type Component struct {
	Name string
	lifecycle.Component
	// After lists what has to be ready before it starts. In the control plane the objects of all manifests always have to.
	After []Event
	// BeforePods makes the kubelet wait until the component is ready.
	BeforePods bool
}

// Event is something that a component can wait for.
type Event int

// The events: Leading in the control plane, the others on a node.
const (
	Leading     Event = iota // this server leads; the component runs on one server at a time
	Containerd               // containerd answers
	Registered               // the Node object exists
	KubeletUser              // the kubelet has its certificate
)

// Admission is an admission plugin of the API server.
type Admission struct {
	Name string // for --disable-admission-plugins
	New  func() admission.Interface
}

// Server is what an add-on may use in the control plane.
type Server struct {
	Config config.Config
	// Kubeconfig is that of user system:coracle, whose roles are in manifests.
	Kubeconfig string
	// Admin is an administrator's kubeconfig.
	Admin string
	// Ping returns nil if a node answers through its tunnel to this server.
	Ping func(ctx context.Context, node string) error
	// Voter votes for the nodes that announce addresses.
	Voter Voter
	// Addresses are those of Gateways.
	Addresses *GatewayAddresses
	// Shares are what the gateways of agents serve.
	Shares *GatewayShares
	// Report replaces the add-on's report.
	Report func(any)
}

// Voter is this server's vote on which node announces an address that belongs to no node.
type Voter interface {
	// Wanted is closed when the first node asks for votes.
	Wanted() <-chan struct{}
	// SetPool replaces the addresses of Services and Gateways, each with the nodes that may announce it, and the ports of those of Gateways.
	SetPool(pool, ports map[netip.Addr][]string)
}

// Node is what an add-on may use on a node.
type Node struct {
	Config config.Config
	// Kubeconfig is that of group system:coracle:nodes, whose roles are in manifests.
	Kubeconfig string
	// Kubelet is the kubeconfig of the kubelet, which may change its own Node.
	Kubelet string
	// Own is the Node object of this node.
	Own *kube.OwnNode
	// API is closed when the API answers.
	API <-chan struct{}
	// Bridge is the interface that pods are attached to.
	Bridge string
	// Report replaces the add-on's report.
	Report func(any)
}

// Needs returns the units for the events that the component waits for, after those that it always waits for.
func (c Component) Needs(units map[Event]*lifecycle.Unit, always ...*lifecycle.Unit) []*lifecycle.Unit {
	for _, event := range c.After {
		always = append(always, units[event])
	}
	return always
}
