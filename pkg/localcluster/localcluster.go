// Package localcluster makes clusters of several nodes on one machine, each node a host of namespaces (package nshost).
//
// A cluster is one process tree. Its root, the keeper, holds everything that the kernel takes away when nobody holds
// it: the hosts, their network, the link to this machine, the rules for their traffic. What remains is written in the
// cluster's record, which Down goes by. So a cluster can be removed after its keeper was killed, or the machine was
// restarted, as well as while it runs.
package localcluster

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"time"
)

// DefaultName is the cluster that is meant if none is named.
const DefaultName = "local"

// DefaultDir is where clusters are kept.
const DefaultDir = "/var/lib/coracle-clusters"

// Roles of nodes.
const (
	Server = "server"
	Agent  = "agent"
)

// Plan is what a cluster is to be.
type Plan struct {
	Name           string
	Servers, Nodes int // Nodes counts servers too
	// Images are archives to import on every node.
	Images []string
	// Config is a configuration file for the servers, "" for none. Joiners take the cluster's settings from them.
	Config string
	// Wait is how long all nodes may take to be Ready.
	Wait time.Duration
	// Ephemeral keeps the nodes' disks in memory: nothing waits for a disk, and nothing is written to one.
	Ephemeral bool
	// From is a snapshot to begin with, "" for an empty cluster.
	From string
}

// validName is what a cluster can be called: node names begin with it.
var validName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$`)

// Check says what is wrong with a plan.
func (p Plan) Check() error {
	switch {
	case !validName.MatchString(p.Name):
		return fmt.Errorf("the cluster's name %q must consist of lower-case letters, digits and dashes, at most 40, and begin with a letter", p.Name)
	case p.Servers < 1:
		return errors.New("a cluster needs at least one server")
	case p.Nodes < p.Servers:
		return fmt.Errorf("%d nodes cannot hold %d servers: every server is also a node", p.Nodes, p.Servers)
	case p.Nodes > maxNodes:
		return fmt.Errorf("%d nodes are too many for one machine; %d are the limit", p.Nodes, maxNodes)
	}
	for _, path := range append([]string{p.Config}, p.Images...) {
		if path != "" && !filepath.IsAbs(path) {
			return fmt.Errorf("the path %s must be absolute", path)
		}
	}
	return nil
}

// Record is what is known of a cluster, kept in its directory as cluster.json.
type Record struct {
	Name    string       `json:"name"`
	Version string       `json:"version"` // of coracle
	Created time.Time    `json:"created"`
	State   State        `json:"state"`
	Network netip.Prefix `json:"network"`
	// Link is the interface of this machine that leads to the nodes.
	Link  string `json:"link"`
	Nodes []Node `json:"nodes"`
	// Images are archives that are imported on every node.
	Images []string `json:"images,omitempty"`
	Config string   `json:"config,omitempty"` // of the servers
	// Ephemeral says that the nodes' disks are in memory.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// From is the snapshot that the cluster began with.
	From   string  `json:"from,omitempty"`
	Keeper Process `json:"keeper"`
	// Owner is the process that the cluster goes with, none for one that stays; Handout a directory that goes with it too.
	Owner   Process `json:"owner,omitzero"`
	Handout string  `json:"handout,omitempty"`
	// Payload is the directory with the unpacked payload.
	Payload string `json:"payload"`
	// UserConfig is what was done to the user's kubeconfig.
	UserConfig UserConfig `json:"userConfig"`
}

// State is how a cluster is.
type State string

// The states.
const (
	Starting State = "starting"
	Running  State = "running"
	// Dead is one whose keeper is gone: killed, or the machine was restarted.
	Dead State = "dead"
)

// Node is one host of a cluster.
type Node struct {
	Name string     `json:"name"`
	Role string     `json:"role"`
	IP   netip.Addr `json:"ip"`
	// PID is the host's init, 0 while the host is down.
	PID int `json:"pid,omitempty"`
	// Cgroup is the host's root in every hierarchy.
	Cgroup string `json:"cgroup"`
	// Ready is when the node was Ready first.
	Ready time.Time `json:"ready,omitzero"`
}

// Context is the name of the cluster's context in the user's kubeconfig.
func (r Record) Context() string { return "coracle-" + r.Name }

// Cgroup holds those of all hosts.
func (r Record) Cgroup() string { return "coracle-" + r.Name }

// table is the nft table with the cluster's rules, in family ip.
func (r Record) table() string { return "coracle-" + r.Name }

// Addresses in a cluster's network: this machine's, the wire's own, which answers DNS and the API of several servers,
// and the first node's.
const (
	machineAddr = 1
	wireAddr    = 2
	firstNode   = 11
	maxNodes    = 100
)

// addr is the nth address of a network.
func addr(network netip.Prefix, n int) netip.Addr {
	a := network.Masked().Addr().As4()
	a[3] += byte(n)
	return netip.AddrFrom4(a)
}

// Machine is this machine's address in the cluster's network, the nodes' gateway.
func (r Record) Machine() netip.Addr { return addr(r.Network, machineAddr) }

// Wire is the address of the wire itself.
func (r Record) Wire() netip.Addr { return addr(r.Network, wireAddr) }

// servers lists the nodes that are servers.
func (r Record) servers() (out []Node) {
	for _, n := range r.Nodes {
		if n.Role == Server {
			out = append(out, n)
		}
	}
	return out
}

// API is where clients reach the cluster's API.
func (r Record) API() netip.AddrPort {
	if servers := r.servers(); len(servers) == 1 {
		return netip.AddrPortFrom(servers[0].IP, apiPort)
	}
	return netip.AddrPortFrom(r.Wire(), apiPort)
}

const apiPort = 6443

// nodes are those of a plan.
func (r *Record) plan(p Plan) {
	for i := range p.Nodes {
		n := Node{Role: Server, IP: addr(r.Network, firstNode+i)}
		number := i + 1
		if i >= p.Servers {
			n.Role, number = Agent, i-p.Servers+1
		}
		n.Name = fmt.Sprintf("%s-%s-%d", p.Name, n.Role, number)
		n.Cgroup = filepath.Join(r.Cgroup(), n.Name)
		r.Nodes = append(r.Nodes, n)
	}
}
