package controlplane

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coracle-dev/coracle/pkg/cluster/join"
	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/kubernetes/apiserver"
)

// egress makes the endpoint accept the nodes' tunnels and the API server use them.
func (e *joinEndpoint) egress(cfg config.Config) apiserver.Egress {
	e.server.Tunnel = e.hub.Handler(nodeOf, refuseTunnel)
	return apiserver.Egress{Tunnels: e.hub, Node: cfg.Node.Name, AnyPodAddress: cfg.Network.Backend == config.BackendNone}
}

// nodeOf returns the node that sends a request, as the API server has authenticated it.
func nodeOf(r *http.Request) (string, error) {
	if user, ok := request.UserFrom(r.Context()); ok {
		if node, ok := strings.CutPrefix(user.GetName(), pki.NodeUser); ok && node != "" {
			return node, nil
		}
	}
	return "", errors.New("only nodes have tunnels")
}

func refuseTunnel(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(join.Refusal{Message: sentence, Time: time.Now()}) // an error means that the client has gone
}
