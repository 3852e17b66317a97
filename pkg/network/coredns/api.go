package coredns

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// apiProxy forwards what the name server reads from the API server, with the node's credentials, and refuses everything else. pods
// reports whether it reads pods.
func apiProxy(kubeconfig string, pods func() bool) (http.Handler, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	server, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API: %w", err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:     transport,
		FlushInterval: -1,                          // watches
		ErrorLog:      zap.NewStdLog(zap.NewNop()), // connections end at any moment
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		readable := readable.MatchString(r.URL.Path) || r.URL.Path == "/api/v1/pods" && pods()
		if r.Method != http.MethodGet || !readable {
			http.Error(w, "the name server does not need this", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}), nil
}

// readable matches the lists that CoreDNS reads and watches, besides pods.
var readable = regexp.MustCompile(`^/(api/v1/(services|namespaces)|apis/discovery\.k8s\.io/v1/endpointslices|` +
	`apis/multicluster\.x-k8s\.io/v1[a-z0-9]*/serviceimports)$`)
