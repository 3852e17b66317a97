// Package join is how a machine enters a cluster: the requests and answers between it and a server, and the joiner's
// side of them. The server side is package endpoint.
//
// It uses the standard library only, because the front joins before any Kubernetes code runs.
//
// Everything is served on the API's own port, behind Kubernetes' authentication; RBAC on these paths says who may ask
// for what (manifests/join.yaml).
package join

import (
	"time"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Prefix is what all paths begin with.
const Prefix = "/coracle/v1/"

// The paths, with who may use them.
const (
	// PathAgent takes a POST of Request and answers Response. Bootstrap tokens of role agent and server; nodes that
	// renew, with the certificate that they have.
	PathAgent = Prefix + "join/agent"
	// PathServer takes a POST of Request and answers Response with Keys. Bootstrap tokens of role server.
	PathServer = Prefix + "join/server"
	// PathCluster takes a GET and answers Cluster. Nodes and servers.
	PathCluster = Prefix + "cluster"
	// PathMembers takes a GET, which answers []Member, and a POST of AddMember, which answers AddedMember. Servers.
	PathMembers = Prefix + "etcd/members"
	// PathTunnel takes a GET with "Upgrade: coracle-tunnel" and becomes a multiplexed connection. Nodes.
	PathTunnel = Prefix + "tunnel"
)

// The groups that bootstrap tokens of the two roles are in, and one for tokens that may replace another machine's Node.
const (
	GroupAgent   = "system:bootstrappers:coracle:agent"
	GroupServer  = "system:bootstrappers:coracle:server"
	GroupReplace = "system:bootstrappers:coracle:replace"
)

// Request is what a joiner says of itself.
type Request struct {
	Node    string `json:"node"`    // its node name
	Version string `json:"version"` // v1.37.1+coracle.1
	// CSR is a PKCS #10 request in PEM form for the node's own client certificate, common name
	// system:coracle:node:NAME, organization system:coracle:nodes. Its key is the machine's identity: who holds it is
	// the same machine.
	CSR []byte `json:"csr"`
	// Replace asks to take the place of another machine that has the node name; the token must allow it.
	Replace bool `json:"replace,omitempty"`
}

// Response lets a machine in.
type Response struct {
	Cluster Cluster `json:"cluster"`
	Cert    []byte  `json:"cert"` // the node's client certificate, PEM
	// Keys are for servers only.
	Keys *Keys `json:"keys,omitempty"`
}

// Cluster is what every node knows of its cluster. It is kept on disk (paths.Dirs.Cluster) for a start without a server.
type Cluster struct {
	CA       []byte                 `json:"ca"` // bundle, PEM
	Settings config.ClusterSettings `json:"settings"`
	Servers  []string               `json:"servers"` // HOST:PORT of every API, as the cluster is told
	Version  string                 `json:"version"` // of the server that answered
}

// Keys are the cluster's own, for a server's PKI directory: file names below it and their content.
type Keys struct {
	Files map[string][]byte `json:"files"`
}

// Member is one of etcd's.
type Member struct {
	ID       string   `json:"id"`   // hexadecimal, as etcdctl prints it
	Name     string   `json:"name"` // the node's; "" before its first start
	PeerURLs []string `json:"peerURLs"`
	Learner  bool     `json:"learner,omitempty"`
}

// AddMember asks for a place in etcd, as a learner. A member that has the same name is removed: the server that it
// was has lost its data.
type AddMember struct {
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"` // https://IP:2380
}

// AddedMember is what a new member starts with.
type AddedMember struct {
	ID             string `json:"id"`
	InitialCluster string `json:"initialCluster"` // NAME=URL,...
}

// Refusal is the body of every answer that is not 200.
type Refusal struct {
	// Message is a sentence for people that names the thing and the fix.
	Message string `json:"message"`
	// Time is the server's clock, so that a joiner whose own is wrong can say so.
	Time time.Time `json:"time"`
}
