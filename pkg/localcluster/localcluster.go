// Package localcluster makes clusters of several nodes on one machine, each node a host of namespaces (package nshost).
//
// A cluster is one process tree. Its root, the holder, owns everything that the kernel removes together with the last process that
// uses it: the hosts, their network, the link to this machine, the rules for their traffic. The rest is listed in the
// cluster's record, which Down reads. So a cluster can be removed while it runs, after its holder was killed, and after a
// reboot.
package localcluster

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"time"
)

// DefaultName is the name of the cluster if none is given.
const DefaultName = "local"

// DefaultDir is the default directory of a Store.
const DefaultDir = "/var/lib/coracle-clusters"

// Roles of nodes.
const (
	Server = "server"
	Agent  = "agent"
)

// Plan describes a cluster to be made.
type Plan struct {
	Name           string
	Servers, Nodes int // Nodes counts servers too
	// Images are archives to import on every node.
	Images []string
	// Config is a configuration file for the servers, "" for none. Joiners take the cluster's settings from them.
	Config string
	// Wait limits the time until all nodes are Ready, or lack only the network of OtherNetwork.
	Wait time.Duration
	// Ephemeral keeps the nodes' disks in memory.
	Ephemeral bool
	// From is the snapshot from which the cluster starts, "" for an empty cluster.
	From string
}

// validName matches names of clusters, with which the node names begin.
var validName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$`)

// Check validates a plan.
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

// Record describes a cluster. It is stored in the cluster's directory as cluster.json.
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
	// OtherNetwork says that the pods' network is that of a plug-in which coracle does not bring. Nodes may lack it when the cluster is made.
	OtherNetwork bool `json:"otherNetwork,omitempty"`
	// From is the snapshot from which the cluster started.
	From   string  `json:"from,omitempty"`
	Holder Process `json:"keeper"` // the name that earlier versions wrote
	// Owner is the process with whose end the cluster is removed, none for one that stays. CommandDir is removed with it too.
	Owner      Process `json:"owner,omitzero"`
	CommandDir string  `json:"handout,omitempty"` // the name that earlier versions wrote
	// Payload is the directory with the unpacked payload.
	Payload string `json:"payload"`
	// UserConfig describes the changes to the user's kubeconfig.
	UserConfig UserConfig `json:"userConfig"`
	// Sysctls are the machine's settings before the cluster was made, by name. Only an earlier version wrote them; see sysctls.
	Sysctls map[string]string `json:"sysctls,omitempty"`
}

// State is the state of a cluster.
type State string

// The states.
const (
	Starting State = "starting"
	Running  State = "running"
	// Dead means that the holder is gone: it was killed, or the machine was rebooted.
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
	// Ready is the time at which the node became Ready first, zero in a cluster with OtherNetwork.
	Ready time.Time `json:"ready,omitzero"`
}

// Context is the name of the cluster's context in the user's kubeconfig.
func (r Record) Context() string { return "coracle-" + r.Name }

// Cgroup is the parent of all hosts' cgroups.
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

// addr returns the nth address of a network.
func addr(network netip.Prefix, n int) netip.Addr {
	a := network.Masked().Addr().As4()
	a[3] += byte(n)
	return netip.AddrFrom4(a)
}

// Machine is this machine's address in the cluster's network. It is the nodes' gateway.
func (r Record) Machine() netip.Addr { return addr(r.Network, machineAddr) }

// Wire is the address of the nodes' bridge.
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

// API is the address of the cluster's API for clients.
func (r Record) API() netip.AddrPort {
	if servers := r.servers(); len(servers) == 1 {
		return netip.AddrPortFrom(servers[0].IP, apiPort)
	}
	return netip.AddrPortFrom(r.Wire(), apiPort)
}

const apiPort = 6443

// plan adds the nodes of a plan.
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
