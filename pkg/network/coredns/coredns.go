// Package coredns runs CoreDNS as a library: every node answers its own pods' queries.
//
// The Corefile is the cluster's ConfigMap kube-system/coredns, loaded again when it changes. This package adds what
// a Corefile written for a pod does not say: where to listen, how to reach the API server, and what the host's name
// servers are. It leaves the Service and its endpoints to the control plane.
package coredns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/atomicfile"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/network/clusterdns"
)

// DNS is a node's name server.
type DNS struct {
	// Listen says where to listen; it may wait for the node to get its pod network. The addresses exist by then.
	Listen func(context.Context) ([]netip.AddrPort, error)
	// Before returns where the node listened before it was restarted, if that is still possible. It is used when
	// Listen takes long because the API server is away: then pods can at least resolve names outside the cluster.
	Before func() []netip.AddrPort
	// Kubeconfig is the node's client: it may read Services, EndpointSlices, Namespaces and the ConfigMap.
	Kubeconfig string
	// Node is the Node object's name, for events.
	Node string
	// Default is the Corefile of a cluster that has none (yet).
	Default string
	// Cache is the file with the cluster's last Corefile, for starts without an API server.
	Cache string
	// ResolvConf is the host's file with upstream name servers. It may be missing, and change.
	ResolvConf string
	// ServiceIPs are the cluster DNS Service's addresses, which lead back here.
	ServiceIPs []netip.Addr
	// Domain and APIServer are what readiness asks for: the kubernetes Service's address under the cluster's domain.
	Domain    string
	APIServer netip.Addr
	// Report takes the state after each change; may be nil.
	Report func(clusterdns.Status)
}

// Run serves until ctx is done. It is ready when the API server's Service resolves.
func (d DNS) Run(ctx context.Context, ready func()) error {
	if err := register(); err != nil {
		return err
	}
	client, err := kube.Client(d.Kubeconfig)
	if err != nil {
		return err
	}
	r := &running{DNS: d, client: client, known: make(chan struct{}), log: logrus.WithField("component", "dns")}
	if err := r.address(ctx); err != nil {
		return err
	}
	defer r.server.stop()
	if err := r.start(ctx); err != nil {
		return err
	}
	unanswered := make(chan error, 1)
	go r.announce(ctx, ready, unanswered)
	return r.follow(ctx, unanswered)
}

// running is a DNS at work.
type running struct {
	DNS
	client *kubernetes.Clientset
	listen []netip.AddrPort
	late   <-chan addresses // what Listen will say, if it has not
	known  chan struct{}    // closed when it has
	log    *logrus.Entry

	server    server
	upstreams []string
	corefile  string // in use, as written in the cluster
	report    clusterdns.Status
}

// start brings up the best Corefile to be had.
func (r *running) start(ctx context.Context) error {
	r.upstreams = upstreams(r.ResolvConf, r.ourselves())
	for _, l := range r.listen {
		r.report.Listen = append(r.report.Listen, l.String())
	}
	var errs []error
	for _, c := range r.candidates(ctx) {
		err := r.load(c.corefile, c.source)
		if err == nil {
			if len(errs) > 0 {
				r.refuse(ctx, errs[0])
			}
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("starting CoreDNS: %w", errors.Join(errs...))
}

// follow loads again whenever the Corefile or the host's name servers change.
func (r *running) follow(ctx context.Context, unanswered <-chan error) error {
	corefiles := make(chan candidate)
	go r.watchCorefile(ctx, corefiles)
	hosts, err := watchFile(ctx, r.ResolvConf)
	if err != nil {
		r.log.WithError(err).Warn("changes of the host's name servers will not be noticed")
	}
	again := time.NewTimer(time.Hour) // after errors that pass
	again.Stop()
	wanted := candidate{r.corefile, r.report.Source}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-unanswered:
			r.log.WithError(err).Warn("going on without an answer")
			r.tell(func(s *clusterdns.Status) { s.Error = err.Error() })
			continue
		case a := <-r.late:
			if a.err != nil || !slices.Equal(a.listen, r.listen) {
				return errors.Join(a.err, errors.New("the node's pod network is another than before"))
			}
			// The API server is back. What runs would look for it again after a pause of up to half a minute.
		case wanted = <-corefiles:
			if wanted.corefile == r.corefile && r.report.Error == "" {
				r.adopt(wanted.source)
				continue
			}
		case <-hosts:
			now := upstreams(r.ResolvConf, r.ourselves())
			if slices.Equal(now, r.upstreams) {
				continue
			}
			r.log.WithField("servers", now).Info("the host's name servers changed")
			r.upstreams = now
		case <-again.C:
		}
		if err := r.reload(ctx, wanted); errors.Is(err, errNotSynced) {
			again.Reset(5 * time.Second)
		}
	}
}

// reload replaces the running server. A bad Corefile is refused, and the one in use loaded with what else changed.
func (r *running) reload(ctx context.Context, c candidate) error {
	err := r.load(c.corefile, c.source)
	if err == nil {
		return nil
	}
	r.refuse(ctx, err)
	if c.corefile != r.corefile && !slices.Equal(r.upstreams, r.report.Upstreams) {
		if err := r.load(r.corefile, r.report.Source); err != nil {
			r.log.WithError(err).Warn("loading the Corefile in use again")
		}
		r.tell(func(s *clusterdns.Status) { s.Error = err.Error() })
	}
	return err
}

// load makes corefile the one in use, or changes nothing.
func (r *running) load(corefile, source string) error {
	text, err := render(corefile, setting{listen: r.listen, kubeconfig: r.Kubeconfig, upstreams: r.upstreams})
	if err != nil {
		return err
	}
	if err := r.server.load(text); err != nil {
		return err
	}
	r.corefile = corefile
	r.adopt(source)
	r.tell(func(s *clusterdns.Status) {
		s.Upstreams, s.Loaded, s.Error = r.upstreams, time.Now(), ""
	})
	r.log.WithFields(logrus.Fields{"corefile": source, "listen": r.report.Listen, "upstreams": r.upstreams}).Info("serving")
	return nil
}

// adopt notes where the Corefile in use comes from, and keeps the cluster's for a start without it.
func (r *running) adopt(source string) {
	if source == fromCluster {
		if _, err := atomicfile.WriteIfChanged(r.Cache, []byte(r.corefile), 0o600); err != nil {
			r.log.WithError(err).Warn("keeping the Corefile for starts without an API server")
		}
	}
	if source != r.report.Source {
		r.tell(func(s *clusterdns.Status) { s.Source = source })
	}
}

// refuse tells everybody who may want to know that the cluster's Corefile is not in use.
func (r *running) refuse(ctx context.Context, err error) {
	if r.report.Error == err.Error() {
		return // told before
	}
	r.log.WithError(err).Warn("not using the Corefile of ConfigMap kube-system/coredns")
	r.tell(func(s *clusterdns.Status) { s.Error = err.Error() })
	r.event(ctx, err)
}

func (r *running) tell(change func(*clusterdns.Status)) {
	change(&r.report)
	if r.Report != nil {
		r.Report(r.report)
	}
}

// ourselves are the addresses at which this server answers.
func (r *running) ourselves() []netip.Addr {
	out := append([]netip.Addr{}, r.ServiceIPs...)
	for _, l := range r.listen {
		out = append(out, l.Addr())
	}
	return out
}
