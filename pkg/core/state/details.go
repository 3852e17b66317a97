package state

import "time"

// The names of the reports in Process.Details.
const (
	ManifestsDetail = "manifests" // []Manifest, in the control plane
	EtcdDetail      = "etcd"      // []EtcdAlarm, in the control plane
	BalancerDetail  = "balancer"  // []balance.Server, in the node
	TunnelsDetail   = "tunnels"   // []Tunnel, in the node
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

// Tunnel is a node's connection to a server, by which the server reaches the node.
type Tunnel struct {
	Server string    `json:"server"`          // HOST:PORT
	Since  time.Time `json:"since,omitzero"`  // when it was made; zero if there is none
	Error  string    `json:"error,omitempty"` // why there is none
}
