package state

import (
	"encoding/json"
	"time"
)

// Report describes how the report of a component in Process.Details is shown. NewReport makes one.
type Report struct {
	// Key is the name of the report in Process.Details.
	Key string
	// Reporter is the kind of machine whose process writes the report.
	Reporter Reporter
	// Title stands before the first line of coracle status.
	Title string
	// Lines are the lines of coracle status; there are none while nothing is worth a line.
	Lines func(json.RawMessage) []string
	// Judge returns the problems for coracle doctor, and a text for the case that there are none. It takes a missing
	// report for an empty one. It is nil for a report without a probe.
	Judge func(json.RawMessage) (problems []Problem, fine string)
}

// Reporter is the kind of machine that writes a report.
type Reporter int

// The reporters: every node, every server, or only the server that leads.
const (
	EachNode Reporter = iota
	EachServer
	LeadingServer
)

// Problem is one finding of coracle doctor.
type Problem struct {
	Text  string
	Fix   string // what the user can do about it
	Fails bool   // it is a failure and not a warning
}

// NewReport describes a report of type T. judge may be nil. A report in the format of another version is taken for a missing
// one.
func NewReport[T any](key string, by Reporter, title string, lines func(T) []string, judge func(T) ([]Problem, string)) Report {
	r := Report{Key: key, Reporter: by, Title: title, Lines: func(raw json.RawMessage) []string {
		var report T
		if raw == nil || json.Unmarshal(raw, &report) != nil {
			return nil
		}
		return lines(report)
	}}
	if judge != nil {
		r.Judge = func(raw json.RawMessage) ([]Problem, string) {
			var report T
			if raw == nil || json.Unmarshal(raw, &report) != nil {
				report = *new(T)
			}
			return judge(report)
		}
	}
	return r
}

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
