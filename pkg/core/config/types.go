// Package config turns flags, environment and files into one resolved Config: typed, complete and checked.
// After Resolve no other package parses a string or applies a default. This package imports only light modules, because the
// front, which links no Kubernetes, uses it.
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

// Role is the role of this machine in the cluster.
type Role string

// The two roles. A server is also a node.
const (
	Server Role = "server"
	Agent  Role = "agent"
)

// Config is the whole configuration of coracle. It is passed by value and not changed after Resolve.
// The front passes it to its child processes as JSON.
type Config struct {
	Role    Role       `json:"role"`
	Dirs    paths.Dirs `json:"dirs"`
	Log     Log        `json:"log"`
	Network Network    `json:"network"`
	// API is the control plane's part; unused by agents.
	API  API  `json:"api"`
	ACME ACME `json:"acme,omitzero"` // unused by agents
	Node Node `json:"node"`
	// Disable names the add-ons that are disabled, out of Addons.
	Disable []string `json:"disable,omitempty"`
	// Remarks are notes for the user about settings that are valid.
	Remarks []string `json:"remarks,omitempty"`
	// Args are pass-through flags for upstream components, as "key=value" without dashes, by component: "kube-apiserver",
	// "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "etcd". They override coracle's.
	Args map[string][]string `json:"args,omitempty"`
	// Join is how the machine joins a cluster, with what it knows of the cluster already.
	Join Join `json:"join,omitzero"`
	// Datastore is the storage of the cluster's data; unused by agents.
	Datastore Datastore `json:"datastore,omitzero"`
	// Snapshots are the copies of the cluster that this server makes; unused by agents.
	Snapshots Snapshots `json:"snapshots,omitzero"`
	// CertificateLife is how long certificates of servers and nodes are valid.
	CertificateLife time.Duration `json:"certificateLife,omitempty"`
	// Security is what the machines of a cluster have in common to contain pods and clients.
	Security Security `json:"security"`
	// DrainOnStop stops pods too when coracle stops.
	DrainOnStop bool `json:"drainOnStop,omitempty"`
	// ControlPlane is the user that the control plane runs as. The front decides it.
	ControlPlane ControlPlane `json:"controlPlane,omitzero"`
	// Ephemeral describes a cluster that is removed when it stops.
	Ephemeral Ephemeral `json:"ephemeral,omitzero"`
}

// ControlPlane is the user and group that the control plane runs as.
type ControlPlane struct {
	User int `json:"user,omitempty"` // 0 is root
	// AsRoot is why it runs as root, "" if it does not.
	AsRoot string `json:"asRoot,omitempty"`
}

// Ephemeral is the configuration of a cluster in memory, which is removed when the server stops.
type Ephemeral struct {
	On bool `json:"on,omitempty"`
	// TTL is the time after which the server stops by itself; 0 is never.
	TTL time.Duration `json:"ttl,omitempty"`
}

// Disabled reports whether an add-on is disabled.
func (c Config) Disabled(addon string) bool { return slices.Contains(c.Disable, addon) }

//go:embed addons.txt
var addons string

// Addons returns the names of all add-ons, which --disable accepts, in alphabetical order. The table of add-ons is in
// package addons; a test there writes their names to addons.txt, because this package links no Kubernetes.
func Addons() []string { return strings.Fields(addons) }

// Log is the configuration of logging.
type Log struct {
	Level  string `json:"level"`  // logrus level: error, warn, info, debug, trace
	Format string `json:"format"` // "text" or "json"
	// Levels are levels by component, where they differ from Level.
	Levels map[string]string `json:"levels,omitempty"`
}

// Backend is the kind of network between the pods of different nodes.
type Backend string

// The backends. With BackendNone the user installs another CNI plugin.
const (
	VXLAN       Backend = "vxlan"
	HostGW      Backend = "host-gw"
	WireGuard   Backend = "wireguard-native"
	BackendNone Backend = "none"
)

// Pool is a set of addresses for Services of type LoadBalancer.
type Pool struct {
	Name string `json:"name"`
	// Manual pools are used only by Services that name the pool or an address of it.
	Manual bool    `json:"manual,omitempty"`
	Ranges []Range `json:"ranges"`
}

// Range is a range of addresses, both ends included.
type Range struct {
	First netip.Addr `json:"first"`
	Last  netip.Addr `json:"last"`
}

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

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
	// Pools are addresses for Services of type LoadBalancer; only servers know them.
	Pools []Pool `json:"pools,omitempty"`
	// MetalLB makes the IPAddressPools of MetalLB pools as well.
	MetalLB bool `json:"metalLB,omitempty"`
	// IngressClasses are served besides our own.
	IngressClasses []string `json:"ingressClasses,omitempty"`
	// LogRequests makes each request to the gateway a line of the log.
	LogRequests bool `json:"logRequests,omitempty"`
	// Proxies are the networks of balancers whose connections to the gateway begin with a header of the PROXY protocol.
	Proxies []netip.Prefix `json:"proxies,omitempty"`
	// HTTP3 serves the gateway's HTTPS with HTTP/3 too.
	HTTP3 bool `json:"http3,omitempty"`
}

// ACME is the server that certificates of Ingresses and Gateways come from.
type ACME struct {
	// Email is for the account. Setting it agrees to the server's terms; without it no certificate is asked for.
	Email  string `json:"email,omitempty"`
	Server string `json:"server,omitempty"` // URL of the directory
	CAFile string `json:"caFile,omitempty"` // verifies the server's own certificate; "" means the system's roots
	// BindingFile holds the key ID and the MAC key of an account that the server's operator has given out.
	BindingFile string `json:"bindingFile,omitempty"`
}

// Enabled reports whether certificates are asked for.
func (a ACME) Enabled() bool { return a.Email != "" }

// API holds the settings of the control plane.
type API struct {
	Bind      netip.Addr `json:"bind"`      // the unspecified address listens on all
	Advertise netip.Addr `json:"advertise"` // what clients inside the cluster are told; default the node's first IP
	// AdvertiseNode is true if Advertise is the node's first IP, and changes with it.
	AdvertiseNode bool     `json:"advertiseNode,omitempty"`
	Port          uint16   `json:"port"` // 6443
	SANs          []string `json:"sans,omitempty"`
	// VIPs are the addresses of the API that one of the servers has at a time, at most one of each family. They are among SANs.
	VIPs           []netip.Addr `json:"vips,omitempty"`
	KubeconfigPath string       `json:"kubeconfigPath"` // /etc/coracle/kubeconfig.yaml
	KubeconfigMode fs.FileMode  `json:"kubeconfigMode"` // 0600

	EnableAdmission  []string `json:"enableAdmission,omitempty"`
	DisableAdmission []string `json:"disableAdmission,omitempty"`
	// EvictAfter is how long pods tolerate a node that is not ready or unreachable by default, in whole seconds.
	EvictAfter time.Duration `json:"evictAfter,omitempty"`
	// HelmNamespaces are those in which HelmCharts may do without a ServiceAccount; all if there are none.
	HelmNamespaces []string `json:"helmNamespaces,omitempty"`
	// LocalStorage is the default directory of local volumes on nodes.
	LocalStorage string `json:"localStorage,omitempty"`
	// Paths of files in upstream's formats, "" if not given; they exist and are readable.
	AdmissionConfig  string `json:"admissionConfig,omitempty"`
	SchedulerConfig  string `json:"schedulerConfig,omitempty"`
	EncryptionConfig string `json:"encryptionConfig,omitempty"`
	AuditPolicy      string `json:"auditPolicy,omitempty"`
	// SecretsPassphrase is a file with a passphrase that seals the keys with which Secrets are encrypted; "" for none. A server waits for it.
	SecretsPassphrase string `json:"secretsPassphrase,omitempty"`
	// Audit keeps an audit log, with coracle's policy if there is no AuditPolicy.
	Audit bool `json:"audit"`
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
	Name string       `json:"name"` // a valid Kubernetes node name
	IPs  []netip.Addr `json:"ips"`  // one, or one of each family, in the order of ClusterCIDRs; see StandIn
	// Sources says of each of IPs how the host was found to have it. It is empty if they were given.
	Sources     []AddressSource   `json:"sources,omitempty"`
	ExternalIPs []netip.Addr      `json:"externalIPs,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Taints      []string          `json:"taints,omitempty"` // key=value:Effect
	// KubeletConfigDir and ContainerdConfigDir hold drop-ins in upstream's formats, merged over coracle's configuration.
	KubeletConfigDir    string `json:"kubeletConfigDir"`
	ContainerdConfigDir string `json:"containerdConfigDir"`
	// ResolvConf is the host's file with upstream name servers for pods and DNS. For systemd-resolved it is the file
	// with the servers behind its stub. Where it still lists nothing but loopback servers (Docker's 127.0.0.11, a
	// dnsmasq of the host), DNS in the host's network namespace may forward to those, but pods cannot reach them:
	// the node process then gives the kubelet a generated file.
	ResolvConf string `json:"resolvConf"`
	// BalancerPort is the port on loopback at which the node's own parts reach the API of any server.
	BalancerPort uint16 `json:"balancerPort"`
	// NoDefaultRegistry pulls images of a registry that has mirrors only from the mirrors.
	NoDefaultRegistry bool `json:"noDefaultRegistry,omitempty"`
	// PodRuntime is how the shims of new pods are started.
	PodRuntime PodRuntime `json:"podRuntime"`
}

// PodRuntime says which pods share a containerd shim.
type PodRuntime string

// The ways to start shims.
const (
	SharedShims  PodRuntime = "shared"
	ClassicShims PodRuntime = "classic"
)

// Balancer returns the address at which the parts of the node reach the API of any server.
func (n Node) Balancer() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), n.BalancerPort)
}

// Join is how a machine joins a cluster. At most one of Token and TokenFile is set, and at most one of AgentToken and
// AgentTokenFile.
type Join struct {
	// Server is https://HOST:PORT of a server of the cluster to join; "" for a server that begins one. A machine that
	// has joined does not need it.
	Server string `json:"server,omitempty"`
	// Token and TokenFile are the token with which this machine joins; on a server that begins a cluster, it is the token with
	// which other machines join.
	// Secrets are not written for the child processes, which read paths.Dirs.Token and AgentToken.
	Token     string `json:"-"`
	TokenFile string `json:"tokenFile,omitempty"`
	// AgentToken and AgentTokenFile are a token with which agents can join and servers cannot.
	AgentToken     string `json:"-"`
	AgentTokenFile string `json:"agentTokenFile,omitempty"`
	// Replace takes the place of another machine that has the node name.
	Replace bool `json:"replace,omitempty"`
	// Retry tries again while no server answers.
	Retry bool `json:"retry,omitempty"`

	// Joined is true if other machines are or were servers of this cluster: this one must not begin a cluster, even
	// if it has no data. It is true on every agent that has joined.
	Joined bool `json:"joined,omitempty"`
	// Servers are HOST:PORT of the cluster's APIs as they were known when the front started; empty on a lone server.
	Servers []string `json:"servers,omitempty"`
}

// Datastore is an external etcd cluster that keeps this cluster's data. Without endpoints, coracle runs
// its own etcd.
type Datastore struct {
	Endpoints []string `json:"endpoints,omitempty"` // URLs: https://HOST:2379, http://HOST:2379, unix:///PATH
	// Paths of PEM files, "" if not given; they exist and are readable.
	CAFile   string `json:"caFile,omitempty"`
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	Prefix   string `json:"prefix,omitempty"` // what all keys begin with, /registry
}

// External reports whether the data is in an external etcd.
func (d Datastore) External() bool { return len(d.Endpoints) > 0 }
