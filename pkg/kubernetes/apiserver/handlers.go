package apiserver

import (
	"net/http"
	"slices"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// Extension serves paths of our own on the API's port, behind its authentication and authorization.
type Extension struct {
	Prefix  string // of the paths, with a slash at both ends
	Handler http.Handler
	// LongRunning are paths whose requests may last: no timeout ends them and nothing counts them as load.
	LongRunning []string
	// Open is closed when requests can be answered. Until then Closed answers them, before anybody asks who sent them: a
	// token that is not known yet would else count as wrong for as long as the authenticator remembers.
	Open   <-chan struct{}
	Closed http.Handler
}

// prepare changes the configuration of the server that requests come to first. It comes before the server is made.
func (e Extension) prepare(cfg *app.Config) {
	if e.Handler == nil {
		return
	}
	generic := &cfg.Aggregator.GenericConfig.Config
	generic.LongRunningFunc = e.longRunning(generic.LongRunningFunc)
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericserver.Config) http.Handler {
		return e.gate(build(handler, c))
	}
}

func (e Extension) longRunning(otherwise apirequest.LongRunningRequestCheck) apirequest.LongRunningRequestCheck {
	return func(r *http.Request, info *apirequest.RequestInfo) bool {
		return slices.Contains(e.LongRunning, r.URL.Path) || otherwise(r, info)
	}
}

// gate answers for the extension while it is not open.
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
		next.ServeHTTP(w, r)
	})
}

// mount enters the handler. It comes before the server is prepared to run.
func (e Extension) mount(server *genericserver.GenericAPIServer) {
	if e.Handler != nil {
		server.Handler.NonGoRestfulMux.UnlistedHandlePrefix(e.Prefix, e.Handler)
	}
}
