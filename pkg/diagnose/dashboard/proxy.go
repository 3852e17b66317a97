package dashboard

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"
)

// passed are the headers of a browser's request that reach the API server: none that says who asks.
var passed = []string{
	"Accept", "Content-Type", "Content-Length", "Connection", "Upgrade",
	"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions",
}

// returned are the headers of an answer that reach the browser, besides those of guard.
var returned = []string{
	"Content-Type", "Content-Length", "Audit-Id", "Warning", "Retry-After", "Connection", "Upgrade",
	"Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions",
}

// contents are the types of content that a browser gets. An aggregated API may be anyone's, and could answer with a page.
var contents = []string{"application/json", "text/plain"}

// newProxy returns what passes requests on to the API server, with the rights of a kubeconfig.
func newProxy(api *rest.Config) (http.Handler, error) {
	target, _, err := rest.DefaultServerUrlFor(api)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's address: %w", err)
	}
	config := rest.CopyConfig(api)
	config.NextProtos = []string{"http/1.1"} // HTTP/2 of Go cannot be upgraded to a WebSocket
	config.UserAgent = "coracle-dashboard"
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the credentials of the kubeconfig: %w", err)
	}
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,                          // logs are shown as they come
		ErrorLog:      zap.NewStdLog(zap.NewNop()), // ErrorHandler tells the browser
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: target.Scheme, Host: target.Host, Path: strings.TrimSuffix(target.Path, "/") + r.In.URL.Path, RawQuery: r.In.URL.RawQuery}
			r.Out.Host = target.Host
			keep(r.Out.Header, passed)
			if r.Out.Header.Get("Upgrade") != "" {
				r.Out.Header.Set("Origin", target.Scheme+"://"+target.Host) // watches are refused without one; guard has checked the browser's
			}
		},
		ModifyResponse: clean,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				refuse(w, http.StatusBadGateway, "The API server does not answer: "+err.Error())
			}
		},
	}, nil
}

// clean removes from an answer what could act on the browser.
func clean(r *http.Response) error {
	if r.StatusCode >= 300 && r.StatusCode < 400 && r.StatusCode != http.StatusNotModified {
		return fmt.Errorf("it answered with a redirection (%d)", r.StatusCode)
	}
	keep(r.Header, returned)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if !slices.Contains(contents, kind) && r.StatusCode != http.StatusSwitchingProtocols {
		r.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	return nil
}

func keep(h http.Header, names []string) {
	for name := range h {
		if !slices.Contains(names, name) {
			h.Del(name)
		}
	}
}
