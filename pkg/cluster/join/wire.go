// Package join makes a machine a member of a cluster. It defines the requests and responses between the machine and a server, and
// implements the joining machine's side. Package endpoint implements the server's side.
//
// It links no Kubernetes code, because the front joins before any such code runs.
//
// The paths are served on the API's port, after Kubernetes' authentication. RBAC rules on them (manifests/join.yaml) define which users
// can send which request.
package join

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Prefix is the prefix of all paths.
const Prefix = "/coracle/v1/"

// The paths.
const (
	// PathAgent answers a POST of Request with Response. It is for bootstrap tokens of the roles agent and server, and for nodes that renew
	// their certificate, which authenticate with the present one.
	PathAgent = Prefix + "join/agent"
	// PathServer answers a POST of Request with Response, including Keys. It is for bootstrap tokens of the role server.
	PathServer = Prefix + "join/server"
	// PathCluster answers a GET with Cluster. It is for nodes and servers.
	PathCluster = Prefix + "cluster"
	// PathMembers answers a GET with []Member, and a POST of AddMember with AddedMember. It is for servers.
	PathMembers = Prefix + "etcd/members"
	// PathTunnel upgrades a GET with "Upgrade: coracle-tunnel" to a multiplexed connection. It is for nodes.
	PathTunnel = Prefix + "tunnel"
	// PathAddresses answers a POST of a node's Beats with Ballots (package addressvote), as long as it lasts. It is for nodes.
	PathAddresses = Prefix + "addresses"
	// PathGateway answers a GET with what the gateway of an agent serves, with its private keys, as soon as that is not what If-None-Match names. It is
	// for nodes that an administrator has made gateways.
	PathGateway = Prefix + "gateway"
)

// StartingHeader is in the answers of a server that serves no path yet.
const StartingHeader = "Coracle-Starting"

// The groups of bootstrap tokens: one for each role, and one for tokens with which a machine can take another machine's node name.
const (
	GroupAgent   = "system:bootstrappers:coracle:agent"
	GroupServer  = "system:bootstrappers:coracle:server"
	GroupReplace = "system:bootstrappers:coracle:replace"
)

// Request is a machine's request to join.
type Request struct {
	Node    string `json:"node"`    // its node name
	Version string `json:"version"` // v1.37.1+coracle.1
	// CSR is a PKCS #10 request in PEM form for the node's own client certificate, common name
	// system:coracle:node:NAME, organization system:coracle:nodes. Its key identifies the machine.
	CSR []byte `json:"csr"`
	// Replace requests the node name even if another machine has it; the token must allow that.
	Replace bool `json:"replace,omitempty"`
	// Addresses, External and Labels are those with which the machine is configured as a node.
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	External  []netip.Addr      `json:"external,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// ReadRequest decodes and checks a Request. It returns the fingerprint of the machine's public key too. The error is a message for the machine.
func ReadRequest(body io.Reader) (r Request, key string, err error) {
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return r, "", fmt.Errorf("reading the request: %w", err)
	}
	if !config.IsNodeName(r.Node) {
		return r, "", fmt.Errorf("%q is not a node name; it must consist of %s, 63 at most", r.Node, config.NodeNameForm)
	}
	key, err = pki.CheckNodeRequest(r.CSR, r.Node)
	return r, key, err
}

// Response is the response to a machine that is accepted.
type Response struct {
	Cluster Cluster `json:"cluster"`
	Cert    []byte  `json:"cert"` // the node's client certificate, PEM
	// Keys are for servers only.
	Keys *Keys `json:"keys,omitempty"`
}

// Cluster describes a cluster to its machines, which store it (paths.Dirs.Cluster) for a start without a server.
type Cluster struct {
	CA       []byte                 `json:"ca"` // bundle, PEM
	Settings config.ClusterSettings `json:"settings"`
	Servers  []string               `json:"servers"` // HOST:PORT of every API, as advertised
	Version  string                 `json:"version"` // of the server that answered
}

// Keys are the cluster's own keys, for a server's PKI directory.
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

// AddMember requests that a member is added to etcd, as a learner. A member of the same name is removed, because that server has lost its
// data.
type AddMember struct {
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"` // https://IP:2380
}

// AddedMember is the configuration with which a new member starts.
type AddedMember struct {
	ID             string `json:"id"`
	InitialCluster string `json:"initialCluster"` // NAME=URL,...
}

// ReasonRemoved is the reason of a refusal of a machine that was removed or replaced: its key is never accepted again.
const ReasonRemoved = "NodeRemoved"

// ReasonUnknownKey is the reason of a refusal of a key that is not recorded for the node, as that of a kubelet after a restore. The kubelet requests
// another certificate.
const ReasonUnknownKey = "NodeKeyUnknown"

// ReasonNoGateway is the reason of a refusal of a node that no administrator has made a gateway.
const ReasonNoGateway = "NoGateway"

// Refusal is the body of every response that is not 200.
type Refusal struct {
	// Message is the reason, with the fix.
	Message string `json:"message"`
	// Reason is one of those above, or "".
	Reason string `json:"reason,omitempty"`
	// Time is the server's clock, with which a joiner detects that its own clock is wrong.
	Time time.Time `json:"time"`
}
