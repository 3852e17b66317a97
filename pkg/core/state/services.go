package state

import "time"

// The names of the reports in Process.Details.
const (
	ManifestsDetail     = "manifests"      // []Manifest, in the control plane
	EtcdDetail          = "etcd"           // []EtcdAlarm, in the control plane
	DNSDetail           = "dns"            // DNS, in the node
	BalancerDetail      = "balancer"       // []balance.Server, in the node
	TunnelsDetail       = "tunnels"        // []Tunnel, in the node
	MetricsDetail       = "metrics"        // Metrics, in the control plane
	VolumesDetail       = "volumes"        // LocalVolumes, in the node
	NetworkPolicyDetail = "network-policy" // NetworkPolicy, in the node
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

// LocalVolumes are the folders that pods of a node keep data in. All is empty on a node that never had one.
type LocalVolumes struct {
	Volumes int `json:"volumes"` // that the API knows
	// Quota says by directory whether the sizes of its volumes hold: "enforced (xfs)", "not enforced: ...".
	Quota map[string]string `json:"quota,omitempty"`
	// Left are folders of volumes that the API does not know any more. Nobody removes them.
	Left []string `json:"left,omitempty"`
}

// NetworkPolicy is how the node puts network policies in force.
type NetworkPolicy struct {
	Policies     int       `json:"policies"`          // of the whole cluster
	IsolatedPods int       `json:"isolatedPods"`      // of this node
	Written      time.Time `json:"written,omitzero"`  // when one of these numbers changed
	Took         float64   `json:"took,omitempty"`    // seconds that writing the rules took then
	Problem      string    `json:"problem,omitempty"` // what is not in force, and why
}
