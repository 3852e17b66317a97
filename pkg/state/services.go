package state

import "time"

// The names of the reports in Process.Details.
const (
	ManifestsDetail = "manifests" // []Manifest, in the control plane
	EtcdDetail      = "etcd"      // []EtcdAlarm, in the control plane
	DNSDetail       = "dns"       // DNS, in the node
	BalancerDetail  = "balancer"  // []balance.Server, in the node
	TunnelsDetail   = "tunnels"   // []Tunnel, in the node
	MetricsDetail   = "metrics"   // Metrics, in the control plane
)

// ManifestState is how far a manifest file got.
type ManifestState string

// The states of a manifest file.
const (
	ManifestApplied ManifestState = "applied"
	ManifestPending ManifestState = "pending" // not tried yet, or waiting for what Error says is missing
	ManifestFailed  ManifestState = "failed"  // needs somebody: Error says what is wrong
	ManifestSkipped ManifestState = "skipped" // a .skip file is beside it
)

// Manifest is what became of one file of manifests.
type Manifest struct {
	File     string        `json:"file"`               // relative to its directory
	Embedded bool          `json:"embedded,omitempty"` // part of coracle, not the user's
	State    ManifestState `json:"state"`
	Objects  int           `json:"objects"`
	Error    string        `json:"error,omitempty"` // names the line
	Applied  time.Time     `json:"applied,omitzero"`
}

// EtcdAlarm is why etcd refuses writes, or everything.
type EtcdAlarm struct {
	Kind   string `json:"kind"`   // NOSPACE or CORRUPT
	Member string `json:"member"` // the server that it is about
	Advice string `json:"advice"` // what people can do
}

// DNS is what the node's name server is doing.
type DNS struct {
	Listen    []string  `json:"listen"`
	Upstreams []string  `json:"upstreams,omitempty"` // what /etc/resolv.conf stands for in the Corefile
	Source    string    `json:"source"`              // of the Corefile in use: cluster, cache or default
	Loaded    time.Time `json:"loaded,omitzero"`
	// Error says what is wrong with the cluster's Corefile, with its line; the one before it is in use.
	Error string `json:"error,omitempty"`
}

// Tunnel is a node's connection to a server, by which the server reaches the node.
type Tunnel struct {
	Server string    `json:"server"`          // HOST:PORT
	Since  time.Time `json:"since,omitzero"`  // when it was made; zero if there is none
	Error  string    `json:"error,omitempty"` // why there is none
}

// Metrics is how metrics-server gets on with the kubelets.
type Metrics struct {
	Nodes  int               `json:"nodes"`            // how many it asks
	Failed map[string]string `json:"failed,omitempty"` // why it has no figures, by node
}
