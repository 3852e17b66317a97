package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
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
	// firstPause and lastPause are the pauses after an error.
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
	// applyTimeout bounds the time that the process may take for a change.
	applyTimeout = 10 * time.Second
	// retryPorts is the time between two tries of a port that another program has.
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
	if !f.start(ctx) {
		return nil
	}
	w := &working{Controller: c, feed: f, writer: gateway.Writer{Files: c.Dir.Files()}}
	for pause := firstPause; ; {
		var again <-chan time.Time
		switch err := w.sync(ctx); {
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
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-f.changed:
			if lifecycle.Sleep(ctx, settle) != nil {
				return nil
			}
		}
	}
}

// working is a controller that runs.
type working struct {
	Controller
	feed    *feed
	writer  gateway.Writer
	pending bool              // something was written that the process has not applied yet
	failing time.Time         // since when; zero while all is well
	warned  bool              // that it fails
	refused map[uint16]string // by the process
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

// sync brings the gateway to what the API has.
func (w *working) sync(ctx context.Context) error {
	ours := translate.Ours(kube.ListOf[*networkingv1.IngressClass](w.feed.classes), kube.ListOf[*networkingv1.Ingress](w.feed.ingresses))
	w.feed.need(ctx, len(ours) > 0)
	if ctx.Err() != nil {
		return nil
	}
	objects := w.feed.objects()
	objects.Node = w.Node
	result := translate.Ingresses(objects)
	if len(result.Served) == 0 {
		w.pending, w.refused = false, nil
		w.tell(objects, result)
		return w.writer.Remove()
	}
	changed, err := w.writer.Write(result.Config, result.Endpoints)
	w.pending = w.pending || changed
	if err != nil {
		return fmt.Errorf("writing the gateway's configuration: %w", err)
	}
	defer func() { w.tell(objects, result) }()
	if !w.pending {
		return nil
	}
	try, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	applied, err := w.Dir.Apply(try)
	if err != nil {
		return err
	}
	w.pending, w.refused = false, applied.Refused
	return nil
}

// tell leaves the outcome for the server that leads.
func (w *working) tell(o translate.Objects, result translate.Result) {
	for _, l := range result.Config.Listeners {
		if why := w.refused[l.Port]; why != "" {
			for _, i := range result.Served {
				result.Problems = append(result.Problems, translate.Problem{Ingress: i, Reason: "PortInUse", Message: fmt.Sprintf("Ingresses are not served on %s of this server: %s", l, why)})
			}
		}
	}
	var nodes cache.Store
	if w.feed.further != nil {
		nodes = w.feed.further.nodes
	}
	w.outcome.tell(func() {
		w.outcome.classes, w.outcome.all, w.outcome.Result = slices.Clone(o.Classes), o.Ingresses, result
		w.outcome.nodes = nil
		if nodes != nil {
			w.outcome.nodes = kube.ListOf[*corev1.Node](nodes)
		}
	})
}
