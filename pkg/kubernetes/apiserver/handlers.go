package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Extension serves paths of coracle on the port of the API, behind its authentication and authorization.
type Extension struct {
	Prefix  string // of the paths, with a slash at both ends
	Handler http.Handler
	// LongRunning are paths whose requests have no timeout and are exempt from the limits of concurrent requests.
	LongRunning []string
	// Open is closed when Handler can answer. Until then Closed answers, before authentication: the authenticator would cache that a token
	// which does not exist yet is invalid.
	Open   <-chan struct{}
	Closed http.Handler
}

// prepare changes the configuration of the outermost server, the aggregator. It is called before the server is made.
func (e Extension) prepare(cfg *app.Config) {
	if e.Handler == nil {
		return
	}
	generic := &cfg.Aggregator.GenericConfig.Config
	generic.LongRunningFunc = e.longRunning(generic.LongRunningFunc)
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericserver.Config) http.Handler {
		return e.gate(build(withoutAliases(handler, c.MaxRequestBodyBytes), c))
	}
}

func (e Extension) longRunning(otherwise apirequest.LongRunningRequestCheck) apirequest.LongRunningRequestCheck {
	return func(r *http.Request, info *apirequest.RequestInfo) bool {
		return slices.Contains(e.LongRunning, r.URL.Path) || otherwise(r, info)
	}
}

// gate passes requests for the extension to Closed until Open is closed, and tells admission where requests come from.
func (e Extension) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, e.Prefix) {
			select {
			case <-e.Open:
			default:
				e.Closed.ServeHTTP(w, r)
				return
			}
		}
		next.ServeHTTP(w, kube.WithPeer(r))
	})
}

// mount adds the handler to the server. It is called before PrepareRun.
func (e Extension) mount(server *genericserver.GenericAPIServer) {
	if e.Handler != nil {
		server.Handler.NonGoRestfulMux.UnlistedHandlePrefix(e.Prefix, e.Handler)
	}
}
