// Package coredns runs CoreDNS: every node answers the queries of its own pods.
//
// CoreDNS runs in a child process without privileges, see RunChild, because whoever may write the Corefile may have it open any file, and
// whoever may send it a packet may find a bug in it. This process, which has privileges, watches what the Corefile depends on and
// forwards the child's requests to the API; it never parses a Corefile further than into words.
//
// The Corefile is in the ConfigMap kube-system/coredns, and is reloaded when it changes. It is written for a CoreDNS in a pod, so this
// package adds the addresses to listen on, a client for the API server, the host's name servers, and a limit on forwarded queries.
// The Service and its endpoints are the control plane's, see package kubedns.
package coredns

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// DNS is a node's name server.
type DNS struct {
	// Listen waits for the node's pod network, and returns the addresses to listen on, which exist then.
	Listen func(context.Context) ([]netip.AddrPort, error)
	// Before returns the addresses of before a restart, if the node still has them. It is used when Listen takes long because the API
	// server does not answer, so that pods can at least resolve names outside the cluster.
	Before func() []netip.AddrPort
	// Kubeconfig is the node's. It has permission to read Services, EndpointSlices, Namespaces and the ConfigMap.
	Kubeconfig string
	// Dir is all that CoreDNS sees of the machine's files, as its root directory: copies of the host's resolv.conf, hosts and
	// public authorities, and what an administrator puts there.
	Dir string
	// Log configures the child's log.
	Log config.Log
	// Node is the Node object's name, for events.
	Node string
	// Default is the Corefile while the ConfigMap has none.
	Default string
	// Cache is the file with the last Corefile of the ConfigMap, for starts without an API server.
	Cache string
	// ResolvConf is the host's resolv.conf with the upstream name servers. It may be missing, and change.
	ResolvConf string
	// ServiceIPs are the addresses of the cluster's DNS Service, which lead back to this name server.
	ServiceIPs []netip.Addr
	// Proxied says that kube-proxy runs, and makes the ServiceIPs lead here once it knows this node's endpoint.
	Proxied bool
	// Domain and APIServer are for the readiness probe: the cluster's domain, and the address of the Service kubernetes.
	Domain    string
	APIServer netip.Addr
	// Report is called with the state after each change; may be nil.
	Report func(clusterdns.Status)
}

// Run serves until ctx is done. It is ready when the Service kubernetes resolves, with Proxied also for who asks at the ServiceIPs.
func (d DNS) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(d.Kubeconfig)
	if err != nil {
		return err
	}
	r := &running{DNS: d, client: client, listenKnown: make(chan struct{}), notCopied: map[string]bool{}, log: logrus.WithField("component", "dns")}
	if r.api, err = apiProxy(d.Kubeconfig, r.readsPods.Load); err != nil {
		return err
	}
	if err := r.findListen(ctx); err != nil {
		return err
	}
	defer func() { r.current.Load().stop() }()
	kube.BridgeMetricsOf(prometheus.GathererFunc(r.gather), "coredns_")
	if err := r.start(ctx); err != nil {
		return err
	}
	unanswered := make(chan error, 1)
	go r.awaitReady(ctx, ready, unanswered)
	go r.endHung(ctx)
	return r.follow(ctx, unanswered)
}

// running is the state of DNS.
type running struct {
	DNS
	client      *kubernetes.Clientset
	listen      []netip.AddrPort
	lateListen  <-chan addresses // the result of Listen, if it comes after the start
	listenKnown chan struct{}    // closed when Listen has returned
	log         *logrus.Entry

	api       http.Handler // for the child
	readsPods atomic.Bool
	current   atomic.Pointer[process]
	upstreams []string
	corefile  string          // the Corefile in use, before render
	notCopied map[string]bool // the host's files that could not be copied, by path
	report    clusterdns.Status
}

// start serves the first of the candidates that loads.
func (r *running) start(ctx context.Context) error {
	r.upstreams = upstreams(r.ResolvConf, r.ownAddresses())
	for _, l := range r.listen {
		r.report.Listen = append(r.report.Listen, l.String())
	}
	var errs []error
	for _, c := range r.candidates(ctx) {
		err := r.load(c.corefile, c.source)
		if err == nil {
			if len(errs) > 0 {
				r.reject(ctx, errs[0])
			}
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("starting CoreDNS: %w", errors.Join(errs...))
}

// follow reloads whenever the Corefile or the host's name servers change.
func (r *running) follow(ctx context.Context, unanswered <-chan error) error {
	corefiles := make(chan candidate)
	go r.watchCorefile(ctx, corefiles)
	look := time.NewTicker(hostInterval)
	defer look.Stop()
	again, restart := time.NewTimer(time.Hour), time.NewTimer(time.Hour) // after temporary errors; after the child's end
	again.Stop()
	restart.Stop()
	restarting := false
	wanted := candidate{r.corefile, r.report.Source}
	for {
		ended := r.current.Load().end()
		if restarting = restarting && !r.current.Load().alive(); restarting {
			ended = nil // it is known
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-unanswered:
			r.log.WithError(err).Warn("continuing without an answer")
			r.setReport(func(s *clusterdns.Status) { s.Error = err.Error() })
			continue
		case a := <-r.lateListen:
			if a.err != nil || !slices.Equal(a.listen, r.listen) {
				return errors.Join(a.err, errors.New("the node's pod network has changed"))
			}
			// The API server is back. Without a reload the kubernetes plugin would retry only after up to 30 s.
		case wanted = <-corefiles:
			if wanted.corefile == r.corefile && r.report.Error == "" {
				r.setSource(wanted.source)
				continue
			}
		case <-look.C:
			r.copyHostFiles(hostFile{[]string{hostsFile}, hostsFile}) // the plugin hosts notices a change by itself
			now := upstreams(r.ResolvConf, r.ownAddresses())
			if slices.Equal(now, r.upstreams) {
				continue
			}
			r.log.WithField("servers", now).Info("the host's name servers changed")
			r.upstreams = now
		case <-again.C:
		case <-ended:
			restarting = true
			restart.Reset(r.noteEnd())
			continue
		case <-restart.C:
			if err := r.restore(); err != nil {
				restart.Reset(restartDelay)
			}
			continue
		}
		if err := r.reload(ctx, wanted); errors.Is(err, errNotSynced) {
			again.Reset(5 * time.Second)
		}
	}
}

// hostInterval is the time between two looks at the host's resolv.conf and hosts. The files are polled because events miss some of the
// ways in which they change: they may be replaced, symbolic links, or bind mounts.
const hostInterval = 2 * time.Second
