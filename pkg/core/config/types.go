// Package config turns flags, environment and files into one resolved Config: typed, complete and checked.
// After Resolve nobody parses a string or applies a default again. It imports only the standard library, pflag
// and yaml, because the front, which links no Kubernetes, uses it.
package config

import (
	_ "embed" // the names of add-ons
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coracle-dev/coracle/pkg/core/paths"
)

// Role is what this machine does in the cluster.
type Role string

// The two roles. A server is also a node.
const (
	Server Role = "server"
	Agent  Role = "agent"
)

// Config is everything that was asked of this process tree. It is passed by value and not changed after Resolve.
// The front passes it to its child processes as JSON.
type Config struct {
	Role    Role       `json:"role"`
	Dirs    paths.Dirs `json:"dirs"`
	Log     Log        `json:"log"`
	Network Network    `json:"network"`
	// API is the control plane's part; unused by agents.
	API  API  `json:"api"`
	Node Node `json:"node"`
	// Disable names the add-ons that are disabled, out of Addons.
	Disable []string `json:"disable,omitempty"`
	// Remarks are what people should know of their settings although nothing has to be mended.
	Remarks []string `json:"remarks,omitempty"`
	// Args are pass-through flags for upstream parts, as "key=value" without dashes, by part: "kube-apiserver",
	// "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "etcd". They win over ours.
	Args map[string][]string `json:"args,omitempty"`
	// Join says how the machine enters a cluster, and what of the cluster it knows already.
	Join Join `json:"join,omitzero"`
	// Datastore is where the cluster's data is kept; unused by agents.
	Datastore Datastore `json:"datastore,omitzero"`
	// DrainOnStop stops pods too when coracle stops.
	DrainOnStop bool `json:"drainOnStop,omitempty"`
	// Ephemeral says that nothing of the cluster is kept.
	Ephemeral Ephemeral `json:"ephemeral,omitzero"`
}

// Ephemeral is how a cluster lives that leaves nothing behind: in memory, until the server stops.
type Ephemeral struct {
	On bool `json:"on,omitempty"`
	// TTL is after how long the server stops by itself, 0 for not.
	TTL time.Duration `json:"ttl,omitempty"`
}

// Disabled reports whether an add-on is disabled.
func (c Config) Disabled(addon string) bool { return slices.Contains(c.Disable, addon) }

//go:embed addons.txt
var addons string

// Addons returns the names of all add-ons, which --disable accepts, in alphabetical order. The table of add-ons is in
// package addons; a test there writes their names to addons.txt, because this package links no Kubernetes.
func Addons() []string { return strings.Fields(addons) }

// Log says what is logged and how.
type Log struct {
	Level  string `json:"level"`  // logrus level: error, warn, info, debug, trace
	Format string `json:"format"` // "text" or "json"
	// Levels are levels by component, where they differ from Level.
	Levels map[string]string `json:"levels,omitempty"`
}

// Backend is how pods of different nodes reach each other.
type Backend string

// The backends. None leaves pod networking to a CNI plugin that the user brings.
const (
	VXLAN       Backend = "vxlan"
	HostGW      Backend = "host-gw"
	BackendNone Backend = "none"
)

// Network holds the settings that all nodes of a cluster share, and this node's interface.
// The CIDR and DNS lists hold one entry, or one of each family with the preferred family first; all four agree.
type Network struct {
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs"`
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs"`
	DNS          []netip.Addr   `json:"dns"`    // the DNS Service's addresses, default the tenth of each service CIDR
	Domain       string         `json:"domain"` // cluster.local
	Backend      Backend        `json:"backend"`
	Iface        string         `json:"iface,omitempty"` // "" is the interface that has the node's IP
	NodePorts    string         `json:"nodePorts"`       // "30000-32767"
}

// API holds the settings of the control plane.
type API struct {
	Bind           netip.Addr  `json:"bind"`      // the unspecified address listens on all
	Advertise      netip.Addr  `json:"advertise"` // what clients inside the cluster are told; default the node's first IP
	Port           uint16      `json:"port"`      // 6443
	SANs           []string    `json:"sans,omitempty"`
	KubeconfigPath string      `json:"kubeconfigPath"` // /etc/coracle/kubeconfig.yaml
	KubeconfigMode fs.FileMode `json:"kubeconfigMode"` // 0600

	EnableAdmission  []string `json:"enableAdmission,omitempty"`
	DisableAdmission []string `json:"disableAdmission,omitempty"`
	// EvictAfter is how long pods that do not say otherwise tolerate a node that is dead, in whole seconds.
	EvictAfter time.Duration `json:"evictAfter,omitempty"`
	// LocalStorage is the directory of local volumes on nodes for which nothing else was said.
	LocalStorage string `json:"localStorage,omitempty"`
	// Paths of files in upstream's formats, "" if not given; they exist and are readable.
	AdmissionConfig  string `json:"admissionConfig,omitempty"`
	SchedulerConfig  string `json:"schedulerConfig,omitempty"`
	EncryptionConfig string `json:"encryptionConfig,omitempty"`
	AuditPolicy      string `json:"auditPolicy,omitempty"`
}

// Local returns the address at which processes of this machine reach its API server.
func (a API) Local() netip.AddrPort {
	addr := a.Bind
	switch {
	case !addr.IsValid() || addr == netip.IPv4Unspecified():
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case addr.IsUnspecified():
		addr = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(addr, a.Port)
}

// Node holds the settings of this machine as a node.
type Node struct {
	Name        string            `json:"name"` // a valid Kubernetes node name
	IPs         []netip.Addr      `json:"ips"`  // one, or one of each family, in the order of ClusterCIDRs; see StandIn
	ExternalIPs []netip.Addr      `json:"externalIPs,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Taints      []string          `json:"taints,omitempty"` // key=value:Effect
	// KubeletConfigDir and ContainerdConfigDir hold drop-ins in upstream's formats, merged after ours.
	KubeletConfigDir    string `json:"kubeletConfigDir"`
	ContainerdConfigDir string `json:"containerdConfigDir"`
	// ResolvConf is the host's file with upstream name servers for pods and DNS. For systemd-resolved it is the file
	// with the servers behind its stub. Where it still lists nothing but loopback servers (Docker's 127.0.0.11, a
	// dnsmasq of the host), DNS in the host's network namespace may forward to those, but pods cannot reach them:
	// the node process then gives the kubelet a generated file.
	ResolvConf string `json:"resolvConf"`
	// BalancerPort is the port on loopback at which the node's own parts reach the API of any server.
	BalancerPort uint16 `json:"balancerPort"`
	// NoDefaultRegistry does not ask a registry itself that has mirrors.
	NoDefaultRegistry bool `json:"noDefaultRegistry,omitempty"`
}

// Balancer returns the address at which the parts of the node reach the API of any server.
func (n Node) Balancer() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), n.BalancerPort)
}

// Join is how a machine enters a cluster. At most one of Token and TokenFile is set, and of the agent's two.
type Join struct {
	// Server is https://HOST:PORT of a server of the cluster to join; "" for a server that begins one. A machine that
	// has joined does not need it.
	Server string `json:"server,omitempty"`
	// Token and TokenFile are what this machine joins with; on a server that begins a cluster, or if people chose it,
	// what others do.
	// Secrets are not written for the child processes, which read paths.Dirs.Token and AgentToken.
	Token     string `json:"-"`
	TokenFile string `json:"tokenFile,omitempty"`
	// AgentToken and AgentTokenFile are what agents join with, and servers cannot.
	AgentToken     string `json:"-"`
	AgentTokenFile string `json:"agentTokenFile,omitempty"`
	// Replace takes the place of another machine that has the node name.
	Replace bool `json:"replace,omitempty"`
	// Retry goes on trying while no server answers.
	Retry bool `json:"retry,omitempty"`

	// Joined says that other machines are or were servers of this cluster: this one must not begin a cluster, even
	// if it has no data. It is true on every agent that has joined.
	Joined bool `json:"joined,omitempty"`
	// Servers are HOST:PORT of the cluster's APIs as they were known when the front started; empty on a lone server.
	Servers []string `json:"servers,omitempty"`
}

// Datastore is an etcd cluster of somebody else's that keeps this cluster's data. Without endpoints, coracle runs
// its own.
type Datastore struct {
	Endpoints []string `json:"endpoints,omitempty"` // URLs: https://HOST:2379, http://HOST:2379, unix:///PATH
	// Paths of PEM files, "" if not given; they exist and are readable.
	CAFile   string `json:"caFile,omitempty"`
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	Prefix   string `json:"prefix,omitempty"` // what all keys begin with, /registry
}

// External reports whether the data is kept by somebody else.
func (d Datastore) External() bool { return len(d.Endpoints) > 0 }
