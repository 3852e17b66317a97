// Package endpoint is the server side of joining: handlers on the API's own port for the requests of package join, the tokens, and
// the claims that record which machine owns which node name.
//
// Authentication and RBAC (manifests/join.yaml) come before the handlers, which decide what a caller gets.
package endpoint

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
)

// Members lists and adds members of etcd, for servers that join. It is nil with an external datastore.
type Members interface {
	List(ctx context.Context) ([]join.Member, error)
	Add(ctx context.Context, member join.AddMember) (join.AddedMember, error)
}

// Server serves the requests of machines that join. Its fields are set before the first request.
type Server struct {
	// Client reads and deletes Nodes, reads and writes Leases in kube-system, and reads the EndpointSlice of Service kubernetes.
	Client kubernetes.Interface
	// Version is the version of this build.
	Version string
	// Own is the HOST:PORT of this server's API. It is the first in the list of servers.
	Own string
	// CA returns the CA bundle that nodes trust.
	CA func() ([]byte, error)
	// Settings returns the settings that the cluster's machines share.
	Settings func() (config.ClusterSettings, error)
	// Keys returns the cluster's keys, which all servers have.
	Keys func() (map[string][]byte, error)
	// Sign issues a node's client certificate.
	Sign func(csr []byte, node string) ([]byte, error)
	// Former reports whether a former CA of the cluster has signed a certificate; nil if there is none.
	Former func(*x509.Certificate) bool
	// BeforeServer is called before another server gets the keys.
	BeforeServer func() error

	Members Members
	// BeforeAdd is called before a member is added to etcd. It may be nil.
	BeforeAdd func(ctx context.Context) error
	// Tunnel serves the nodes' tunnels, after their claims were checked. Nil refuses tunnels.
	Tunnel http.Handler
	// Addresses serves nodes that ask for addresses to announce, likewise.
	Addresses http.Handler
	// Gateway serves agents that are gateways, likewise.
	Gateway http.Handler

	checks checks

	// Log gets a line for each machine that joins or is refused. Nil means logrus' standard logger.
	Log logrus.FieldLogger
}

// Handler serves all paths below join.Prefix. Authentication and authorization come before it.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+join.PathAgent, s.answer(s.agent))
	mux.HandleFunc("POST "+join.PathServer, s.answer(s.server))
	mux.HandleFunc("GET "+join.PathCluster, s.answer(s.cluster))
	mux.HandleFunc("GET "+join.PathMembers, s.answer(s.members))
	mux.HandleFunc("POST "+join.PathMembers, s.answer(s.addMember))
	mux.HandleFunc("GET "+join.PathTunnel, s.forNodes(func() http.Handler { return s.Tunnel }, "this server has no tunnels"))
	mux.HandleFunc("POST "+join.PathAddresses, s.forNodes(func() http.Handler { return s.Addresses }, "this server gives out no addresses"))
	mux.HandleFunc("GET "+join.PathGateway, s.forNodes(func() http.Handler { return s.Gateway }, "this server has no gateway"))
	return mux
}

// Closed answers requests until machines can join.
func Closed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1")
	w.Header().Set(join.StartingHeader, "true")
	WriteRefusal(w, http.StatusServiceUnavailable, "the server is starting")
}

// refusal is a response other than 200, with a message for people.
type refusal struct {
	code    int
	message string
	reason  string // join.ReasonRemoved or ""
}

// Error returns the message.
func (r *refusal) Error() string { return r.message }

func newRefusal(code int, format string, args ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// answer makes a handler from a function that returns the response or an error.
func (s *Server) answer(do func(r *http.Request, who caller) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := callerOf(r)
		if err == nil {
			err = receive(w, r)
		}
		var value any
		if err == nil {
			value, err = do(r, who)
		}
		if err != nil {
			s.writeError(w, r, who, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}
}

// writeError answers with an error.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, who caller, err error) {
	refused, ok := errors.AsType[*refusal](err)
	if !ok {
		refused = &refusal{code: http.StatusServiceUnavailable, message: "the server cannot answer now: " + err.Error()}
	}
	s.log().WithFields(logrus.Fields{"user": who.name, "from": r.RemoteAddr}).Warnf("refused %s: %s", r.URL.Path, refused.message)
	refused.write(w)
}

// WriteRefusal answers with a status other than 200 and a message.
func WriteRefusal(w http.ResponseWriter, code int, message string) {
	(&refusal{code: code, message: message}).write(w)
}

func (r *refusal) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.code)
	_ = json.NewEncoder(w).Encode(join.Refusal{Message: r.message, Reason: r.reason, Time: time.Now()}) // an error means that the client has gone
}

func (s *Server) log() logrus.FieldLogger {
	if s.Log != nil {
		return s.Log
	}
	return logrus.WithField("component", "join")
}

// caller is the authenticated user of a request.
type caller struct {
	name   string
	groups []string
}

func callerOf(r *http.Request) (caller, error) {
	user, ok := request.UserFrom(r.Context())
	if !ok {
		return caller{}, newRefusal(http.StatusUnauthorized, "the request has no authenticated user")
	}
	return caller{user.GetName(), user.GetGroups()}, nil
}

// NodeOf returns the node that sends a request, as the API server has authenticated it.
func NodeOf(r *http.Request) (string, error) {
	who, err := callerOf(r)
	if err == nil && who.node() == "" {
		err = errors.New("only nodes have tunnels")
	}
	return who.node(), err
}

func (c caller) in(group string) bool { return slices.Contains(c.groups, group) }

// node returns the caller's node name, "" if it is not a node.
func (c caller) node() string {
	if name, ok := strings.CutPrefix(c.name, pki.NodeUser); ok && c.in(pki.NodeGroup) {
		return name
	}
	return ""
}

// read decodes a request's body.
func read(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return newRefusal(http.StatusBadRequest, "reading the request: %v", err)
	}
	return nil
}

func (s *Server) cluster(r *http.Request, who caller) (any, error) {
	if err := s.checkNode(r, who); err != nil {
		return nil, err
	}
	return s.describe(r.Context(), who.node() == "")
}

// describe returns the description of the cluster for a machine. Some settings are secret: only servers get those.
func (s *Server) describe(ctx context.Context, forServer bool) (join.Cluster, error) {
	none := join.Cluster{}
	ca, err := s.CA()
	if err != nil {
		return none, err
	}
	settings, err := s.Settings()
	if err != nil {
		return none, err
	}
	if !forServer {
		settings = settings.ForAgents()
	}
	servers, err := s.servers(ctx)
	if err != nil {
		return none, err
	}
	return join.Cluster{CA: ca, Settings: settings, Servers: servers, Version: s.Version}, nil
}

// servers lists the addresses of all API servers, this one's first.
func (s *Server) servers(ctx context.Context) ([]string, error) {
	all := []string{s.Own}
	slice, err := s.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // missing if the API has only a loopback address
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the list of servers: %w", err)
	}
	for _, port := range slice.Ports {
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				if port.Port != nil {
					all = append(all, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	slices.Sort(all[1:])
	return slices.Compact(append(all[:1], slices.DeleteFunc(all[1:], func(a string) bool { return a == s.Own })...)), nil
}

func (s *Server) members(r *http.Request, _ caller) (any, error) {
	if s.Members == nil {
		return nil, errNoMembers
	}
	return s.Members.List(r.Context())
}

var errNoMembers = newRefusal(http.StatusNotFound, "this cluster has an external datastore, whose members are not known here")

func (s *Server) addMember(r *http.Request, _ caller) (any, error) {
	var member join.AddMember
	if err := read(r, &member); err != nil {
		return nil, err
	}
	if s.Members == nil {
		return nil, errNoMembers
	}
	if err := s.claims().checkServer(r.Context(), member.Name); err != nil {
		return nil, err
	}
	if s.BeforeAdd != nil {
		if err := s.BeforeAdd(r.Context()); err != nil {
			return nil, err
		}
	}
	added, err := s.Members.Add(r.Context(), member)
	if err == nil {
		s.log().WithField("from", r.RemoteAddr).Infof("etcd has the new member %s (%s)", member.Name, member.PeerURL)
	}
	return added, err
}

// forNodes checks a node's claim before another handler serves its request. absent is the answer if there is no handler.
func (s *Server) forNodes(handler func() http.Handler, absent string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := callerOf(r)
		if err == nil {
			err = s.checks.one(who.name, func() error { return s.checkNode(r, who) })
		}
		if err == nil && handler() == nil {
			err = newRefusal(http.StatusNotFound, "%s", absent)
		}
		if err != nil {
			s.writeError(w, r, who, err)
			return
		}
		handler().ServeHTTP(w, r)
	}
}
