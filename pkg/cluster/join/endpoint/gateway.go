package endpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Gateways gives agents that are gateways what they serve, with private keys.
type Gateways struct {
	// Client reads Nodes: each time the label is read anew, as an administrator may have removed it.
	Client kubernetes.Interface
	// Share returns what a node serves, nil if it is not known, and a channel that is closed at the next change.
	Share func(node string) ([]byte, <-chan struct{})

	mu      sync.Mutex
	waiting map[string]*context.CancelFunc // one request of each node
}

// lookAtLabel bounds the reading of a Node, maxWait the time until an answer without a change, and writeTimeout the time that a node takes to read one.
const (
	writeTimeout = 30 * time.Second
	lookAtLabel  = 5 * time.Second
	maxWait      = 50 * time.Second
)

// ServeHTTP implements http.Handler. The node's claim is checked before.
func (g *Gateways) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	node, err := NodeOf(r)
	if err != nil {
		WriteRefusal(w, http.StatusForbidden, "only nodes can be gateways")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWait)
	defer cancel()
	defer g.wait(node, &cancel)()
	for {
		share, next := g.Share(node)
		if refused := g.admit(ctx, node); refused != nil {
			refused.write(w)
			return
		}
		if share == nil {
			WriteRefusal(w, http.StatusServiceUnavailable, "this server does not know yet what the node's gateway serves")
			return
		}
		sum := sha256.Sum256(share)
		if tag := `"` + hex.EncodeToString(sum[:]) + `"`; r.Header.Get("If-None-Match") != tag {
			w.Header().Set("ETag", tag)
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // one that reads nothing keeps nothing in memory
			_, _ = w.Write(share)                                                            // an error means that the node has gone
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
}

// wait notes the request of a node that waits, and ends an earlier one.
func (g *Gateways) wait(node string, cancel *context.CancelFunc) (done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if earlier := g.waiting[node]; earlier != nil {
		(*earlier)()
	}
	if g.waiting == nil {
		g.waiting = map[string]*context.CancelFunc{}
	}
	g.waiting[node] = cancel
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.waiting[node] == cancel {
			delete(g.waiting, node)
		}
	}
}

// admit returns a refusal, nil if an administrator has made the node a gateway.
func (g *Gateways) admit(ctx context.Context, name string) *refusal {
	ctx, cancel := context.WithTimeout(ctx, lookAtLabel)
	defer cancel()
	node, err := g.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return &refusal{code: http.StatusServiceUnavailable, message: "the server cannot read the node now: " + err.Error()}
	case err != nil || !kube.IsGatewayAgent(node):
		return &refusal{
			code: http.StatusForbidden, reason: join.ReasonNoGateway,
			message: fmt.Sprintf("node %s is no gateway: an administrator makes an agent one with kubectl label node %s %s=true", name, name, kube.GatewayLabel),
		}
	}
	return nil
}
