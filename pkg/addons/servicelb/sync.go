package servicelb

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// writers is how many requests are in flight at once.
const writers = 8

// shadowed is the key under which an event about a shadow is sent once. It does not contain the process, because one that
// restarts again and again is no news.
type shadowed struct {
	service types.UID
	portQuery
}

// controller carries out plans. One goroutine runs it.
type controller struct {
	Balancers
	client  kubernetes.Interface
	feed    *feed
	inRange func(port int) bool // of NodePorts
	alive   *liveness

	fresh    map[types.UID]*corev1.Service // as written by this controller, while the watch has older versions
	since    map[portQuery]time.Time       // when each open query was made first; nil before the first sync
	shadowed map[shadowed]bool             // events that were sent already
	given    []given                       // lately
	decided  map[types.UID]addon.Decision  // about Gateways, the last time
	// unsettled: what Gateways were given may have come to a Service too, which is looked for until settled.
	unsettled bool
	settled   time.Time
}

// sync makes a plan and carries it out. soon is when to call it again even without an event, 0 for never.
func (c *controller) sync(ctx context.Context) (soon time.Duration, err error) {
	services := c.services()
	gateways := c.gateways()
	if len(services)+len(gateways) == 0 { // before the watch of nodes ends
		if err := c.writeQueries(ctx, plan{}); err != nil {
			return 0, err
		}
	}
	c.feed.need(ctx, services, len(gateways) > 0)
	if ctx.Err() != nil {
		return 0, nil
	}
	if c.since == nil {
		c.since = uncheckedBefore(services, time.Now())
	}
	nodePorts, err := c.nodePorts(ctx, services)
	if err != nil {
		return 0, err
	}
	pools := c.Pools.current()
	in := snapshot{
		services: c.withGateways(services, gateways, pools), nodes: listOf[*corev1.Node](c.feed.nodes), endpoints: c.feed.endpoints(),
		lost: c.alive.lost(), nodePorts: nodePorts, since: c.since, now: time.Now(), pools: pools,
	}
	if in.unusable, err = c.Pools.unusable(); err != nil {
		return 0, err
	}
	c.forget(in)
	p := in.plan(c.Reserved)
	if p.grants || c.unsettled {
		if in.external, err = c.external(ctx); err != nil {
			return 0, err
		}
		c.unsettled = in.now.Before(c.settled)
		p = in.plan(c.Reserved)
	}
	c.alive.follow(ctx, slices.DeleteFunc(slices.Collect(maps.Keys(p.serving)), func(n string) bool { return n == c.Self }))
	c.since, soon = remember(c.since, p.open, in.now)
	switch {
	case soon > 0:
	case slices.ContainsFunc(services, func(s *corev1.Service) bool { return isChanging(s, in.now) }):
		soon = changeTimeout
	case len(in.external) > 0: // the watch does not show when they are removed
		soon = checkInterval
	}
	p.outcomes = c.decide(p.outcomes)
	if left := max(time.Until(c.settled), time.Millisecond); c.unsettled && (soon == 0 || left < soon) {
		soon = left
	}
	asked, written := c.writeQueries(ctx, p), c.write(ctx, p.outcomes)
	again, withdrawn := c.withdraw(ctx)
	if again > 0 && (soon == 0 || again < soon) {
		soon = again
	}
	c.report(p.outcomes)
	return soon, errors.Join(asked, written, withdrawn)
}

// services returns the Services of this package from the watch, or newer versions that this controller wrote.
func (c *controller) services() []*corev1.Service {
	all := slices.DeleteFunc(listOf[*corev1.Service](c.feed.services), func(s *corev1.Service) bool { return !serves(s) })
	here := map[types.UID]bool{}
	for i, s := range all {
		here[s.UID] = true
		if mine := c.fresh[s.UID]; mine != nil {
			if order, err := resourceversion.CompareResourceVersion(mine.ResourceVersion, s.ResourceVersion); err == nil && order > 0 {
				all[i] = mine
				continue
			}
			delete(c.fresh, s.UID)
		}
	}
	maps.DeleteFunc(c.fresh, func(uid types.UID, _ *corev1.Service) bool { return !here[uid] })
	return all
}

// remember records when each open query was made first, and returns how soon the first of them times out.
func remember(before map[portQuery]time.Time, open []portQuery, now time.Time) (since map[portQuery]time.Time, soon time.Duration) {
	since = map[portQuery]time.Time{}
	for _, q := range open {
		since[q] = now
		if first, ok := before[q]; ok {
			since[q] = first
		}
		if left := since[q].Add(answerTimeout).Sub(now); left > 0 && (soon == 0 || left < soon) {
			soon = left
		}
	}
	return since, soon
}

// writeQueries writes to Nodes the queries that differ from those in them, and whether they may announce addresses of pools.
func (c *controller) writeQueries(ctx context.Context, p plan) error {
	var todo []func() error
	for _, n := range listOf[*corev1.Node](c.feed.nodes) {
		announces := ""
		if _, may := p.announce[n.Name]; may {
			announces = "true"
		}
		for key, text := range map[string]string{askedAnnotation: formatPorts(slices.Collect(maps.Keys(p.asked[n.Name]))), kube.AnnouncesAnnotation: announces} {
			if text != n.Annotations[key] {
				todo = append(todo, func() error { return annotate(ctx, c.client, n.Name, key, text) })
			}
		}
	}
	return inParallel(todo)
}

// write updates the Services and sends events about changes.
func (c *controller) write(ctx context.Context, outcomes []outcome) error {
	var mu sync.Mutex
	var todo []func() error
	for _, o := range outcomes {
		todo = append(todo, func() error {
			err := c.reportShadows(ctx, o, &mu)
			if o.hold {
				return err
			}
			got, patchErr := patch(ctx, c.client, o.service, applied(o))
			if patchErr != nil || got == nil {
				return errors.Join(err, patchErr)
			}
			mu.Lock()
			c.remember(got)
			if more := without(grantsOf(got), grantsOf(o.service)); len(more) > 0 {
				c.given = append(c.given, given{got.UID, more, time.Now()})
			}
			mu.Unlock()
			if o.release {
				return err
			}
			for _, e := range events(o.service, got) {
				err = errors.Join(err, tell(ctx, c.client, got, e.kind, e.reason, e.message))
			}
			return err
		})
	}
	return inParallel(todo)
}

// remember keeps a Service as it was written.
func (c *controller) remember(got *corev1.Service) {
	small, _ := kube.Trim(trimService)(got)
	c.fresh[got.UID] = small.(*corev1.Service)
}

// reportShadows sends one event for each port that a process uses as well.
func (c *controller) reportShadows(ctx context.Context, o outcome, mu *sync.Mutex) error {
	var err error
	for _, s := range o.shadows {
		key := shadowed{o.service.UID, s.portQuery}
		mu.Lock()
		sent := c.shadowed[key]
		c.shadowed[key] = true
		mu.Unlock()
		if !sent {
			err = errors.Join(err, tell(ctx, c.client, o.service, corev1.EventTypeWarning, "PortShadowed", s.text))
		}
	}
	return err
}

// forget drops the events about Services and nodes that are gone.
func (c *controller) forget(in snapshot) {
	maps.DeleteFunc(c.shadowed, func(key shadowed, _ bool) bool {
		return !slices.ContainsFunc(in.services, func(s *corev1.Service) bool { return s.UID == key.service }) ||
			!slices.ContainsFunc(in.nodes, func(n *corev1.Node) bool { return n.Name == key.node })
	})
}

// nodePorts returns the NodePorts of all Services if any Service of type LoadBalancer requests a port of their range.
func (c *controller) nodePorts(ctx context.Context, services []*corev1.Service) (map[port]nodePort, error) {
	wanted := slices.ContainsFunc(services, func(s *corev1.Service) bool {
		return slices.ContainsFunc(portsOf(s), func(p port) bool { return c.inRange(int(p.number)) })
	})
	if !wanted {
		return nil, nil
	}
	out := map[port]nodePort{}
	note := func(s *corev1.Service) {
		name := s.Namespace + "/" + s.Name
		for _, p := range s.Spec.Ports {
			if p.NodePort > 0 {
				out[port{p.NodePort, protocolOf(p.Protocol)}] = nodePort{s.UID, "the NodePort of Service " + name}
			}
		}
		if s.Spec.HealthCheckNodePort > 0 {
			out[port{s.Spec.HealthCheckNodePort, corev1.ProtocolTCP}] = nodePort{s.UID, "the health check of Service " + name}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	others, err := c.client.CoreV1().Services("").List(ctx, metav1.ListOptions{FieldSelector: "spec.type=NodePort", ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	for i := range others.Items {
		note(&others.Items[i])
	}
	for _, s := range services {
		note(s)
	}
	return out, nil
}

// report updates the report for coracle status.
func (c *controller) report(outcomes []outcome) {
	if c.Report == nil {
		return
	}
	all := []LoadBalancer{}
	for _, o := range outcomes {
		if o.release {
			continue
		}
		lb := LoadBalancer{Service: o.service.Namespace + "/" + o.service.Name, Addresses: []string{}}
		for _, i := range o.ingress {
			lb.Addresses = append(lb.Addresses, i.IP)
		}
		switch {
		case o.refused != nil:
			lb.Problem = o.refused.Message
		case o.ready.Status != metav1.ConditionTrue:
			lb.Problem = o.ready.Message
		}
		all = append(all, lb)
	}
	c.Report(all)
}

// inParallel calls all functions, at most writers at once, and joins their errors.
func inParallel(todo []func() error) error {
	errs := make([]error, len(todo))
	var all errgroup.Group
	all.SetLimit(writers)
	for i, f := range todo {
		all.Go(func() error { errs[i] = f(); return nil })
	}
	_ = all.Wait() // the errors are in errs
	return errors.Join(errs...)
}
