package endpoint

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// agent handles requests to join as an agent and to renew a node's certificate.
func (s *Server) agent(r *http.Request, who caller) (any, error) {
	req, key, err := s.request(r, maxSkew)
	if err != nil {
		return nil, err
	}
	if who.node() == "" {
		return s.admit(r, who, req, key)
	}
	if who.node() != req.Node {
		return nil, newRefusal(http.StatusForbidden, "node %s cannot have a certificate for node %s", who.node(), req.Node)
	}
	if err := s.mayRenew(r, who, key); err != nil {
		return nil, err
	}
	return s.respond(r.Context(), req)
}

// server handles requests to join as a server. The response has the cluster's keys.
func (s *Server) server(r *http.Request, who caller) (any, error) {
	if !who.in(join.GroupServer) { // RBAC has checked this already; the response has the cluster's keys
		return nil, newRefusal(http.StatusForbidden, "%s may not join as a server: make a token with coracle token create --role server", who.name)
	}
	req, key, err := s.request(r, maxServerSkew)
	if err != nil {
		return nil, err
	}
	response, err := s.admit(r, who, req, key)
	if err != nil {
		return nil, err
	}
	if err := s.BeforeServer(); err != nil {
		return nil, err
	}
	if response.Cluster, err = s.describe(r.Context(), true); err != nil {
		return nil, err
	}
	files, err := s.Keys()
	if err != nil {
		return nil, err
	}
	response.Keys = &join.Keys{Files: files}
	return response, nil
}

// request decodes and validates a request. It returns the hash of the machine's public key too.
func (s *Server) request(r *http.Request, skew int) (req join.Request, key string, err error) {
	if req, key, err = join.ReadRequest(r.Body); err != nil {
		return req, "", newRefusal(http.StatusBadRequest, "%v", err)
	}
	if err := checkMachine(req); err != nil {
		return req, "", err
	}
	if err := checkVersion(req.Version, s.Version, skew); err != nil {
		return req, "", err
	}
	return req, key, nil
}

// admit claims the node name for the machine, if that is allowed, and issues its certificate.
func (s *Server) admit(r *http.Request, who caller, req join.Request, key string) (*join.Response, error) {
	if !who.in(join.GroupAgent) && !who.in(join.GroupServer) {
		return nil, newRefusal(http.StatusForbidden, "%s cannot join without a token: make one with coracle token create", who.name)
	}
	if err := s.notAMember(r.Context(), who, req.Node); err != nil {
		return nil, err
	}
	former, err := s.claims().Former(r.Context(), req.Node, key)
	if err != nil {
		return nil, err
	}
	entitled := func(node *corev1.Node) error { return mayReplace(r, who, req, node) }
	if err := s.claims().Take(r.Context(), req.Node, key, entitled); err != nil {
		return nil, err
	}
	if err := s.claims().Rename(r.Context(), former, req.Node, key); err != nil {
		return nil, err
	}
	if err := s.claims().record(r.Context(), req.Node, joinsAs(r, who, req, key)); err != nil {
		return nil, err
	}
	response, err := s.respond(r.Context(), req)
	if err == nil {
		s.log().WithField("from", r.RemoteAddr).Infof("accepted node %s with token %s", req.Node, strings.TrimPrefix(who.name, "system:bootstrap:"))
	}
	return response, err
}

// notAMember refuses the name of a member of etcd to a token for agents: it is a server's, also while there is no Node.
func (s *Server) notAMember(ctx context.Context, who caller, name string) error {
	if s.Members == nil || who.in(join.GroupServer) {
		return nil
	}
	members, err := s.Members.List(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(members, func(m join.Member) bool { return m.Name == name }) {
		return newRefusal(http.StatusConflict, "node name %s is a server's, which is a member of etcd: give this machine another name with --node-name, "+
			"or remove that server with coracle node remove %[1]s --force", name)
	}
	return nil
}

func (s *Server) claims() Claims { return Claims{Client: s.Client, Log: s.log()} }

// mayReplace returns an error if the machine must not take the name of a node that belongs to another machine. node is nil if that
// machine has not registered yet.
func mayReplace(r *http.Request, who caller, req join.Request, node *corev1.Node) error {
	switch {
	case req.Replace && who.in(join.GroupReplace) && kube.IsServer(node) && !who.in(join.GroupServer):
		// A server without its Node loses its etcd membership, which a token for agents must not cause.
		return newRefusal(http.StatusConflict, "node name %s is a server's%s, and a token for agents does not allow to replace it: join with one made with "+
			"coracle token create --role server --allow-replace, or delete the node with coracle node remove %[1]s", req.Node, where(node))
	case req.Replace && who.in(join.GroupReplace):
		return nil
	case req.Replace:
		return newRefusal(http.StatusConflict, "node name %s is another machine's%s, and this token does not allow --replace-node: make one that does with "+
			"coracle token create --allow-replace, or delete the node with coracle node remove %[1]s", req.Node, where(node))
	case who.in(join.GroupServer) && node != nil && hasAddress(node, r.RemoteAddr):
		return nil // a server that has lost its data; a server's token gives all keys anyway
	}
	return newRefusal(http.StatusConflict, "node name %s is another machine's%s: give this machine another name with --node-name; or, if it takes "+
		"the other's place, delete the node with coracle node remove %[1]s, or join with --replace-node and a token made with coracle token create --allow-replace",
		req.Node, where(node))
}

// where describes the machine of a Node, for messages.
func where(node *corev1.Node) string {
	if node == nil {
		return ", which joined just now"
	}
	var addresses []string
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeHostName {
			addresses = append(addresses, a.Address)
		}
	}
	if len(addresses) == 0 {
		return ""
	}
	return " (" + strings.Join(addresses, ", ") + ")"
}

// hasAddress reports whether a request comes from an internal address of the Node. An external address may be a NAT's, shared by many
// machines.
func hasAddress(node *corev1.Node, remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP && ip.Equal(net.ParseIP(a.Address))
	})
}

// checkNode refuses a node that was removed or replaced. It accepts callers that are not nodes.
func (s *Server) checkNode(r *http.Request, who caller) error {
	name := who.node()
	if name == "" {
		return nil
	}
	return s.claims().Check(r.Context(), name, clientKey(r))
}

// clientKey returns the fingerprint of the client certificate's key, as pki.CheckNodeRequest returns it, "" without a certificate.
func clientKey(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	return pki.Fingerprint(r.TLS.PeerCertificates[0])
}

// mayRenew returns an error if the node must not renew its certificate. The key has to stay the same.
func (s *Server) mayRenew(r *http.Request, who caller, key string) error {
	if key != clientKey(r) {
		return newRefusal(http.StatusForbidden, "a node's certificate is renewed for the key that it has")
	}
	cert := r.TLS.PeerCertificates[0]
	if former := s.Former != nil && s.Former(cert); former || time.Now().After(cert.NotAfter) {
		if err := s.claims().checkHolder(r.Context(), who.node(), key); err != nil {
			return err
		}
		s.log().WithField("from", r.RemoteAddr).Infof("renewing the certificate of node %s, valid until %s, of a former authority: %t", who.node(), cert.NotAfter.Format(time.DateOnly), former)
	}
	return s.claims().Renew(r.Context(), who.node(), key)
}

func (s *Server) respond(ctx context.Context, req join.Request) (*join.Response, error) {
	cluster, err := s.describe(ctx, false)
	if err != nil {
		return nil, err
	}
	cert, err := s.Sign(req.CSR, req.Node)
	if err != nil {
		return nil, err
	}
	return &join.Response{Cluster: cluster, Cert: cert}, nil
}

// The number of minor versions that a node, and another server, can be behind this server. They cannot be ahead. This is Kubernetes'
// version skew policy.
const (
	maxSkew       = 3
	maxServerSkew = 1
)

// checkVersion refuses a machine whose version violates the skew policy.
func checkVersion(joiner, server string, skew int) error {
	theirs, err := version.ParseGeneric(joiner)
	if err != nil {
		return newRefusal(http.StatusBadRequest, "%q is not a version of coracle", joiner)
	}
	ours, err := version.ParseGeneric(server)
	if err != nil {
		return fmt.Errorf("reading the server's own version: %w", err)
	}
	behind := int(ours.Minor()) - int(theirs.Minor())
	switch {
	case theirs.Major() != ours.Major():
	case behind < 0:
		return newRefusal(http.StatusConflict, "this machine has coracle %s and the server %s: a node must not be newer than its servers; "+
			"upgrade the servers first, or join with coracle %s", joiner, server, server)
	case behind <= skew:
		return nil
	}
	return newRefusal(http.StatusConflict, "this machine has coracle %s and the server %s, which is too far apart (at most %d minor versions): "+
		"join with coracle %[2]s", joiner, server, skew)
}
