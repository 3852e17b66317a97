package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/gatewayapi"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/routepolicy"
	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/network/gateway"
)

// Controller leaves the configuration of this server's gateway for its process. It runs on each server. While there is no Ingress of our
// classes it holds two watches, and there is no configuration, and so no process and no port.
type Controller struct {
	Kubeconfig string
	// Dir is the directory of the gateway's process.
	Dir gateway.Dir
	// Node are the addresses of this node.
	Node []netip.Addr
	// Addresses are those of Gateways.
	Addresses *addon.GatewayAddresses
	// Shares are what the gateways of agents serve.
	Shares *addon.GatewayShares
	// ACME says that certificates are to be had from an ACME server.
	ACME bool
	// Classes are the names of further IngressClasses that are served.
	Classes []string
	// LogRequests makes each request a line of the gateway's log.
	LogRequests bool
	// Proxies are the networks of balancers that name their clients with the PROXY protocol.
	Proxies []netip.Prefix
	// HTTP3 serves HTTPS with HTTP/3 too.
	HTTP3 bool

	outcome *outcome
}

// outcome is what the last translation came to, for the server that leads.
type outcome struct {
	mu      sync.Mutex
	told    chan struct{} // closed by the next translation
	classes []*networkingv1.IngressClass
	all     []*networkingv1.Ingress
	nodes   []*corev1.Node
	translate.Result

	// Of the Gateway API: what the status of its objects should be, and the objects as they are, by the plurals of their kinds.
	statuses     []gatewayapi.Status
	objects      map[string]cache.Store
	wantedByACME []translate.Wanted
	uncertified  []Problem // of certificates by ACME; the Issuer sets it
	policies     policies
}

func newOutcome() *outcome { return &outcome{told: make(chan struct{})} }

// tell replaces the outcome.
func (o *outcome) tell(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
	close(o.told)
	o.told = make(chan struct{})
}

// Pauses of the controller.
const (
	// settle is how long changes are collected, which often come in groups.
	settle = 10 * time.Millisecond
	// littleWork is a translation, or a round of status, that needs no rest, and longestRest bounds the rest after more.
	littleWork  = 100 * time.Millisecond
	longestRest = time.Second
	// firstPause and lastPause are the pauses after an error.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// applyTimeout bounds the time that the process may take for a change.
	applyTimeout = 10 * time.Second
	// retryPorts is the time between two tries of a port that another program has, and of a kind that the API server does not serve.
	retryPorts = 30 * time.Second
	// patience is how long the process may take to start before people are told.
	patience = 10 * time.Second
)

// Run works until ctx is done. It is ready at once, because no component depends on it. What it has left stays: traffic goes on while it is away.
func (c Controller) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(c.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	ctx, stop := context.WithCancel(kube.WithComponent(ctx, "gateway"))
	defer stop()
	f := newFeed(client)
	f.status = func() { c.outcome.tell(func() {}) }
	api, err := c.apiFeed(f)
	if err != nil {
		return err
	}
	policies, err := newPolicyFeed(f, c.Kubeconfig)
	if err != nil {
		return err
	}
	if !f.start(ctx) || !api.start(ctx) {
		return nil
	}
	w := &working{Controller: c, feed: f, api: api, policies: policies, writer: gateway.Writer{Files: c.Dir.Files()}}
	for pause := firstPause; ; {
		var again <-chan time.Time
		began := time.Now()
		err := w.sync(ctx)
		rest := restAfter(began)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			w.complain(err)
			again = time.After(pause)
			pause = min(2*pause, lastPause)
		default:
			w.failing, pause = time.Time{}, firstPause
			if len(w.refused) > 0 { // another program has a port
				w.pending, again = true, time.After(retryPorts)
			}
			if w.sayLacking(); len(w.lacking) > 0 {
				again = time.After(retryPorts)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-f.changed:
			if lifecycle.Sleep(ctx, max(settle, time.Until(rest))) != nil {
				return nil
			}
		}
	}
}

// restAfter returns until when changes are collected after work that began at a time and ends now: so a storm of changes to many objects takes half of the
// time at most. After little work there is no rest.
func restAfter(began time.Time) time.Time {
	took := time.Since(began)
	if took < littleWork {
		took = 0
	}
	return time.Now().Add(min(took, longestRest))
}

// working is a controller that runs.
type working struct {
	Controller
	feed     *feed
	api      *apiFeed
	policies *policyFeed
	applied  policies // by the last translation
	writer   gateway.Writer
	pending  bool                // something was written that the process has not applied yet
	failing  time.Time           // since when; zero while all is well
	warned   bool                // that it fails
	refused  map[uint16]string   // by the process
	lacking  []string            // kinds of the Gateway API that people know are lacking
	known    *gatewayapi.Objects // the last of the Gateway API that were all known; nil before
}

// sayLacking logs which defined kinds of the Gateway API are not there, once while it is so.
func (w *working) sayLacking() {
	if !slices.Equal(w.lacking, w.api.lacking) && len(w.api.lacking) > 0 {
		logrus.WithField("component", "gateway").Warnf("the API server has definitions for %s of the Gateway API, but gives no objects of v1: the gateway goes on without them; update the definitions with coracle gateway-api",
			strings.Join(w.api.lacking, ", "))
	}
	w.lacking = w.api.lacking
}

// complain logs an error that lasts: the process needs some time to start.
func (w *working) complain(err error) {
	if w.failing.IsZero() {
		w.failing, w.warned = time.Now(), false
	}
	if !w.warned && time.Since(w.failing) > patience {
		w.warned = true
		logrus.WithField("component", "gateway").WithError(err).Warn("the gateway of this server goes on with what it had")
	}
}

// apiFeed returns what watches the objects of the Gateway API.
func (c Controller) apiFeed(f *feed) (*apiFeed, error) {
	config, err := kube.Config(c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	api := newAPIFeed(f)
	if api.client, err = apiClient(config); err != nil {
		return nil, err
	}
	api.metadata, err = metadata.NewForConfig(metadata.ConfigFor(config))
	return api, err
}

// translate returns what the gateway of a node serves, which has these addresses.
func (w *working) translate(objects translate.Objects, own gatewayapi.Objects, node []netip.Addr, ingresses bool) (*outputs, gateway.Config, gateway.Endpoints) {
	objects.Node = node
	if w.ACME {
		objects.Orders = translate.NewOrders()
	}
	own.Services, own.Slices, own.Certificates, own.Node = objects.Services, objects.Slices, objects.Certificates, objects.Node
	own.Pools, own.Orders = w.Addresses.Pools(), objects.Orders
	o := translated(objects, own, ingresses)
	config, endpoints := o.merged()
	config.LogRequests, config.Proxies = w.LogRequests, w.Proxies
	o.policies.all, o.policies.statuses = routepolicy.Apply(&config, w.policies.list(), objects.Passwords)
	translate.ListenForChallenges(objects, &config)
	if w.HTTP3 {
		config.HTTP3 = http3Ports(config.Listeners, objects.Services, node)
	}
	return o, config, endpoints
}

// sync brings the gateway to what the API has.
func (w *working) sync(ctx context.Context) error {
	unknown := w.api.refresh(ctx)
	gatewaysNeed := len(gatewayapi.OurGateways(listed[*v1.GatewayClass](gatewayClasses, w.api.first), listed[*v1.Gateway](gateways, w.api.first))) > 0
	if err := w.api.need(ctx, w.feed.client, gatewaysNeed || w.api.hasStatusOfOurs()); err != nil {
		unknown = err
	}
	if unknown != nil && w.known != nil {
		gatewaysNeed = gatewaysNeed || len(w.known.Gateways) > 0
	}
	ours := translate.Ours(kube.ListOf[*networkingv1.IngressClass](w.feed.classes), kube.ListOf[*networkingv1.Ingress](w.feed.ingresses), w.Classes)
	if err := w.feed.need(ctx, len(ours) > 0 || gatewaysNeed); err != nil {
		return err // what is served stays
	}
	if err := w.policies.need(ctx, len(ours) > 0 || gatewaysNeed); err != nil {
		return err // what is served stays
	}
	w.feed.needSecrets(ctx, w.policies.secrets(ours))
	if ctx.Err() != nil {
		return nil
	}
	if unknown == nil {
		known := w.api.objects()
		w.known = &known
	} else if w.known == nil {
		return unknown // what is served stays
	}
	own := *w.known // with an error the last that were known: Ingresses do not wait for the Gateway API
	objects := w.feed.objects()
	objects.OtherClasses = w.Classes
	o, config, endpoints := w.translate(objects, own, w.Node, len(ours) > 0)
	w.applied = o.policies
	w.Addresses.SetGateways(o.api.Addressed())
	w.feed.needChallenges(ctx, len(o.read.Orders.List()) > 0)
	config.Challenges = w.feed.listChallenges()
	defer w.share(objects, own, len(ours) > 0, config, endpoints) // after this server's own
	if len(o.ingresses.Served) == 0 && len(config.Listeners) == 0 {
		w.pending, w.refused = false, nil
		w.tell(o, "")
		return cmp.Or(w.writer.Remove(), unknown)
	}
	changed, err := w.writer.Write(config, endpoints)
	w.pending = w.pending || changed
	if err != nil {
		w.tell(o, "the gateway cannot be told")
		return fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	if w.pending {
		try, cancel := context.WithTimeout(ctx, applyTimeout)
		defer cancel()
		applied, err := w.Dir.Apply(try)
		if err != nil {
			w.tell(o, "the gateway's process does not answer yet")
			return err
		}
		w.pending, w.refused = false, applied.Refused
	}
	w.tell(o, "")
	return unknown
}
