// Package dashboard serves a page that shows a cluster, and passes the page's calls to the API server with the rights of a
// kubeconfig. The page itself is in web/; the browser never gets a credential of the cluster.
//
// Other users of the machine, and every web page in the same browser, can reach a port of the loopback interface. So a call
// needs a cookie, which the page gets for the secret in its URL's fragment; the host's name is checked, on loopback it is a
// random one, because browsers send cookies to every port of a host; and only listed paths of the API are passed on.
package dashboard

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"k8s.io/client-go/rest"
)

// Report answers one of the page's questions about this machine.
type Report func(ctx context.Context) (any, error)

// Server is the page and its way to the API.
type Server struct {
	// API says where the API server is, and holds the credentials that every call gets.
	API *rest.Config
	// Page holds the files of the page.
	Page fs.FS
	// Secret is what a browser shows once to be let in.
	Secret string
	// Hosts are the names under which the page may be called; IP accepts every IP address as well.
	Hosts []string
	IP    bool
	// ReadOnly refuses everything that changes the cluster, or runs something in it, whatever the kubeconfig may do.
	ReadOnly bool
	// Reports are the reports about this machine, by name; they are empty where there are none.
	Reports map[string]Report
	// Facts are told to the page as they are.
	Facts Facts
}

// Facts are what the page shows of its server.
type Facts struct {
	Version string `json:"version"`
	Context string `json:"context"`
	// Namespace is that of the context.
	Namespace string   `json:"namespace"`
	Server    string   `json:"server"`
	ReadOnly  bool     `json:"readOnly"`
	Reports   []string `json:"reports"`
}

// Limits of what a browser, or a stranger, can take of the process.
const (
	mostHeader      = 32 << 10
	mostBody        = 4 << 20
	mostConnections = 256
)

// Certificate returns the certificate for a connection.
type Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Serve answers on all listeners until ctx ends. With a certificate it speaks TLS.
func (s *Server) Serve(ctx context.Context, listeners []net.Listener, certificate Certificate) error {
	handler, err := s.Handler(certificate != nil)
	if err != nil {
		return err
	}
	server := newServer(handler)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		l = netutil.LimitListener(l, mostConnections)
		if certificate != nil {
			l = tls.NewListener(l, &tls.Config{GetCertificate: certificate, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}})
		}
		go func() { ended <- server.Serve(l) }()
	}
	var failed error
	for range listeners {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) && failed == nil {
			failed = err
		}
		server.Close() // one without the other would leave the port to others
	}
	return failed
}

func newServer(handler http.Handler) *http.Server {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: mostHeader,
		WriteTimeout: time.Minute,                 // for who shows no cookie; see session.required
		ErrorLog:     zap.NewStdLog(zap.NewNop()), // what strangers do wrong
		Protocols:    new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true) // WebSockets, of which the page has many, are simplest in it
	return server
}

// Handler returns what answers the browser.
func (s *Server) Handler(secure bool) (http.Handler, error) {
	proxy, err := newProxy(s.API)
	if err != nil {
		return nil, err
	}
	certificates, err := newCertificates(s.API)
	if err != nil {
		return nil, err
	}
	in := newSession(s.Secret, secure)
	mux := http.NewServeMux()
	mux.Handle("/", http.HandlerFunc(s.page))
	mux.Handle("POST /session", http.HandlerFunc(in.begin))
	mux.Handle("GET /facts", in.required(http.HandlerFunc(s.facts)))
	mux.Handle("GET /certificates/{namespace}/{name}", in.required(certificates))
	mux.Handle("GET /reports/{name}", in.required(http.HandlerFunc(s.report)))
	api := in.required(s.filter(proxy))
	for _, path := range []string{"/api", "/api/", "/apis", "/apis/", "/version"} {
		mux.Handle(path, api)
	}
	return s.guard(secure, mux), nil
}

func (s *Server) facts(w http.ResponseWriter, _ *http.Request) {
	facts := s.Facts
	facts.ReadOnly, facts.Reports = s.ReadOnly, []string{}
	for _, name := range []string{"status", "doctor"} {
		if s.Reports[name] != nil {
			facts.Reports = append(facts.Reports, name)
		}
	}
	answer(w, facts)
}

func (s *Server) report(w http.ResponseWriter, r *http.Request) {
	report := s.Reports[r.PathValue("name")]
	if report == nil {
		refuse(w, http.StatusNotFound, "There is no such report here: run 'coracle dashboard' as root on a server or an agent.")
		return
	}
	value, err := report(r.Context())
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, value)
}
