// Package nodeguard refuses, in the API server, certificates of machines that were removed or replaced, and ends the requests that they
// have open. Package endpoint records in the claims on node names which keys are allowed.
package nodeguard

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/join/endpoint"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
)

// KubeletUser is the prefix of kubelets' user names. The node's name follows.
const KubeletUser = "system:node:"

// KeyExtra is the field of a user's extra information with the fingerprint of the key of the certificate. Nodes have it when they request
// certificates: the API stores it in the request.
const KeyExtra = "authentication.coracle.io/key"

// syncTimeout limits how long a node's request waits until the claims are known. That takes some milliseconds at the start of the API server.
const syncTimeout = 10 * time.Second

// Guard checks the requests of nodes. Requests of other users are not changed.
type Guard struct {
	// Seen, if it is set, is told of each request before it is authenticated. What it returns, unless nil, is told as whom that was.
	Seen func(*http.Request) func(user.Info)
	// Former, if it is set, reports whether a former CA of the cluster has signed a certificate.
	Former func(*x509.Certificate) bool

	disconnect func(node string)
	synced     chan struct{}

	mu   sync.Mutex
	keys map[string]endpoint.Keys // of restricted names, by node
	open map[string]map[*call]struct{}
}

// call is a request that is being served.
type call struct {
	cert   *x509.Certificate
	cancel context.CancelFunc
}

// New returns a guard that refuses nodes until Run has read the claims. disconnect ends the connections of a node that are no requests any more.
func New(disconnect func(node string)) *Guard {
	return &Guard{disconnect: disconnect, synced: make(chan struct{}), keys: map[string]endpoint.Keys{}, open: map[string]map[*call]struct{}{}}
}

// Run follows the claims until ctx is done. The client may list and watch Leases.
func (g *Guard) Run(ctx context.Context, client kubernetes.Interface) {
	restricted := func(o *metav1.ListOptions) { o.LabelSelector = endpoint.RestrictedLabel }
	update := func(obj any, deleted bool) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if claim, ok := obj.(*coordinationv1.Lease); ok && !deleted {
			g.set(endpoint.ClaimedBy(claim.Name), endpoint.KeysOf(claim))
		} else if ok {
			g.set(endpoint.ClaimedBy(claim.Name), endpoint.Keys{})
		}
	}
	informer := coordinationinformers.NewFilteredLeaseInformer(client, metav1.NamespaceSystem, 0, nil, restricted)
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { update(obj, false) },
		UpdateFunc: func(_, obj any) { update(obj, false) },
		DeleteFunc: func(obj any) { update(obj, true) },
	})
	if err != nil { // of an informer that was stopped
		return
	}
	go func() {
		if cache.WaitFor(ctx, "", handled.HasSyncedChecker()) {
			close(g.synced)
		}
	}()
	informer.RunWithContext(ctx)
}

// set replaces the keys of a node name, and ends what machines have open whose keys are not allowed any more.
func (g *Guard) set(node string, keys endpoint.Keys) {
	g.mu.Lock()
	before := g.keys[node]
	if keys.Restricted {
		g.keys[node] = keys
	} else {
		delete(g.keys, node)
	}
	ended := 0
	for c := range maps.Keys(g.open[node]) {
		if !keys.Allows(pki.Fingerprint(c.cert)) {
			c.cancel()
			ended++
		}
	}
	g.mu.Unlock()
	select {
	case <-g.synced:
	default: // no node is served yet
		return
	}
	if keys.Includes(before) {
		return
	}
	g.disconnect(node) // the machine that has the name now connects again
	logrus.WithField("component", "node-guard").Infof("refusing a machine that was node %s; ended %d of its requests", node, ended)
}

// Authenticator adds KeyExtra to nodes that create certificate requests, and accepts the expired certificate of a node that renews it.
func (g *Guard) Authenticator(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		var seen func(user.Info)
		if g.Seen != nil {
			seen = g.Seen(r)
		}
		response, ok, err := next.AuthenticateRequest(renewable(r))
		if !ok {
			if known, found := g.former(r); found {
				return known, true, nil
			}
		}
		if err == nil && ok && seen != nil {
			seen(response.User)
		}
		if err != nil || !ok || r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/apis/certificates.k8s.io/") {
			return response, ok, err
		}
		if node, cert := nodeOf(r); node != "" {
			extra := maps.Clone(response.User.GetExtra())
			if extra == nil {
				extra = map[string][]string{}
			}
			extra[KeyExtra] = []string{pki.Fingerprint(cert)}
			response.User = &user.DefaultInfo{Name: response.User.GetName(), UID: response.User.GetUID(), Groups: response.User.GetGroups(), Extra: extra}
		}
		return response, ok, err
	})
}

// Handler passes on requests of nodes whose key is allowed, and ends them when it is not allowed any more. It comes before authentication: a
// certificate's common name is the user.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node, cert := nodeOf(r)
		if node == "" {
			next.ServeHTTP(w, r)
			return
		}
		if !g.awaitSynced(r.Context()) {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the server has not read yet which nodes were removed")
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		c := &call{cert, cancel}
		if keys, ok := g.begin(node, c); !ok {
			reason, message := metav1.StatusReason(join.ReasonUnknownKey), fmt.Sprintf("this certificate's key is not one of the machine that is node %s now", node)
			if keys.Revoked(pki.Fingerprint(cert)) {
				reason, message = join.ReasonRemoved, endpoint.Removed(node)
			}
			refuse(w, http.StatusUnauthorized, reason, message)
			return
		}
		defer g.end(node, c)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// begin registers a request, unless its key is not allowed.
func (g *Guard) begin(node string, c *call) (endpoint.Keys, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	keys := g.keys[node]
	if keys.Restricted && !keys.Allows(pki.Fingerprint(c.cert)) {
		return keys, false
	}
	if g.open[node] == nil {
		g.open[node] = map[*call]struct{}{}
	}
	g.open[node][c] = struct{}{}
	return keys, true
}

func (g *Guard) end(node string, c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open[node], c)
	if len(g.open[node]) == 0 {
		delete(g.open, node)
	}
}

func (g *Guard) awaitSynced(ctx context.Context) bool {
	select {
	case <-g.synced:
		return true
	default:
	}
	timeout := time.NewTimer(syncTimeout)
	defer timeout.Stop()
	select {
	case <-g.synced:
		return true
	case <-ctx.Done():
	case <-timeout.C:
	}
	return false
}

// nodeOf returns the node of the client's certificate, "" if the client is not a node.
func nodeOf(r *http.Request) (string, *x509.Certificate) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return "", nil
	}
	cert := r.TLS.PeerCertificates[0]
	for _, prefix := range []string{KubeletUser, pki.NodeUser} {
		if node, ok := strings.CutPrefix(cert.Subject.CommonName, prefix); ok {
			return node, cert
		}
	}
	return "", nil
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // an error means that the client has gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}
