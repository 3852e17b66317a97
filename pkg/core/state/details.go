package state

import "time"

// The names of the reports in Process.Details.
const (
	ManifestsDetail = "manifests" // []Manifest, in the control plane
	EtcdDetail      = "etcd"      // []EtcdAlarm, in the control plane
	BalancerDetail  = "balancer"  // []tcpbalancer.Server, in the node
	TunnelsDetail   = "tunnels"   // []Tunnel, in the node
)

// ManifestState is the state of a manifest file.
type ManifestState string

// The states of a manifest file.
const (
	ManifestApplied ManifestState = "applied"
	ManifestPending ManifestState = "pending" // not applied yet; Error says what is missing
	ManifestFailed  ManifestState = "failed"  // Error says what has to be corrected
	ManifestSkipped ManifestState = "skipped" // a .skip file is beside it
)

// Manifest is the report about one manifest file.
type Manifest struct {
	File     string        `json:"file"`               // relative to its directory
	Embedded bool          `json:"embedded,omitempty"` // part of coracle, not the user's
	State    ManifestState `json:"state"`
	Objects  int           `json:"objects"`
	Error    string        `json:"error,omitempty"` // names the line
	Applied  time.Time     `json:"applied,omitzero"`
}

// EtcdAlarm is an alarm of etcd, which then refuses writes or all requests.
type EtcdAlarm struct {
	Kind   string `json:"kind"`   // NOSPACE or CORRUPT
	Member string `json:"member"` // the server that it is about
	Advice string `json:"advice"` // what the administrator can do
}

// Tunnel is a node's connection to a server, by which the server reaches the node.
type Tunnel struct {
	Server string    `json:"server"`          // HOST:PORT
	Since  time.Time `json:"since,omitzero"`  // when it was made; zero if there is none
	Error  string    `json:"error,omitempty"` // why there is none
}
