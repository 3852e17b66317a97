package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
	"github.com/coracle-dev/coracle/pkg/core/addon"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// Status writes the status of Ingresses, and Events for what is not served. It runs on one server.
type Status struct {
	Kubeconfig string
	Self       string // the name of this server's node, the source of Events
	// Classes are the names of further IngressClasses that are served. Those that there are not are made.
	Classes []string
	// Report is called after each change.
	Report func(Report)
	// Addresses are those of Gateways.
	Addresses *addon.GatewayAddresses

	outcome *outcome
}

// Run works until ctx is done. It is ready at once, because no component depends on it.
func (s Status) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, s.Kubeconfig)
	if err != nil {
		return err
	}
	config, err := kube.Config(s.Kubeconfig)
	if err != nil {
		return err
	}
	kube.Fence(ctx, config)
	api, err := apiClient(config)
	if err != nil {
		return err
	}
	policies, err := policyClient(s.Kubeconfig, func(c *rest.Config) { kube.Fence(ctx, c) })
	if err != nil {
		return err
	}
	ready()
	w := &statusWriter{Status: s, client: client, api: api, policies: policies, had: map[string]bool{}, told: map[string]bool{}, written: map[types.UID][]networkingv1.IngressLoadBalancerIngress{}}
	for pause := firstPause; ; {
		s.outcome.mu.Lock()
		next := s.outcome.told
		s.outcome.mu.Unlock()
		addresses := s.Addresses.Next()
		var again <-chan time.Time
		began := time.Now()
		err := w.sync(ctx)
		rest := restAfter(began)
		if err != nil && ctx.Err() == nil {
			logrus.WithField("component", "gateway").WithError(err).Warn("trying again")
			again = time.After(pause)
			pause = min(2*pause, lastPause)
		} else {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-next:
		case <-addresses:
		}
		if lifecycle.Sleep(ctx, time.Until(rest)) != nil {
			return nil
		}
	}
}

// statusWriter is a Status that runs.
type statusWriter struct {
	Status
	client   kubernetes.Interface
	api      rest.Interface // of the Gateway API
	policies dynamic.Interface
	had      map[string]bool // addresses that this server has written
	// classMade says that GatewayClass coracle has been created, or was there.
	classMade bool
	made      map[types.UID]made                                      // the Services of Gateways, by the Gateway
	told      map[string]bool                                         // what people were told, and is still so
	written   map[types.UID][]networkingv1.IngressLoadBalancerIngress // of Ingresses, by this server
}

func (w *statusWriter) sync(ctx context.Context) error {
	w.outcome.mu.Lock()
	classes, all, nodes, result, policies := w.outcome.classes, w.outcome.all, w.outcome.nodes, w.outcome.Result, w.outcome.policies
	statuses, objects := w.outcome.statuses, w.outcome.objects
	uncertified := w.outcome.uncertified
	w.outcome.mu.Unlock()
	errs := []error{w.defaultClass(ctx, classes), w.makeClasses(ctx, classes)}
	addresses := addressesOf(nodes)
	foreign := foreignClasses(classes)
	served := map[types.UID]bool{}
	for _, i := range result.Served {
		served[i.UID] = true
		if foreign[translate.ClassName(i)] && !w.mayWrite(i, nodes) {
			continue
		}
		errs = append(errs, w.write(ctx, i, addresses))
	}
	exists := map[types.UID]bool{}
	for _, i := range all {
		exists[i.UID] = true
		if _, wrote := w.written[i.UID]; wrote && !served[i.UID] { // its class is another one now
			errs = append(errs, w.write(ctx, i, nil))
			delete(w.written, i.UID)
		}
	}
	maps.DeleteFunc(w.written, func(of types.UID, _ []networkingv1.IngressLoadBalancerIngress) bool { return !exists[of] })
	errs = append(errs, w.gatewayClass(ctx, objects[gatewayClasses]))
	problems := ingressProblems(result.Problems)
	for _, s := range statuses {
		found, err := w.writeAPI(ctx, s, objects, addresses)
		problems = append(problems, found...)
		errs = append(errs, err)
	}
	found, err := w.infrastructure(ctx, statuses, objects)
	problems = append(problems, found...)
	errs = append(errs, err, w.writePolicies(ctx, policies), w.tell(ctx, problems))
	w.Report(report(len(result.Served), gatewaysIn(statuses), problems).with(uncertified))
	return errors.Join(errs...)
}

// gatewayClass creates our class when the definitions of the Gateway API have been installed. Who deletes it later does not want it.
func (w *statusWriter) gatewayClass(ctx context.Context, classes cache.Store) error {
	if classes == nil {
		w.classMade = false
		return nil
	}
	if w.classMade {
		return nil
	}
	if _, found, _ := classes.GetByKey(translate.Class); !found {
		class := &v1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: translate.Class}, Spec: v1.GatewayClassSpec{ControllerName: translate.Controller}}
		if err := w.api.Post().Resource(gatewayClasses).Body(class).Do(ctx).Error(); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating GatewayClass %s: %w", class.Name, err)
		}
	}
	w.classMade = true
	return nil
}

// problem is why an object is not served as it was meant.
type problem struct {
	corev1.ObjectReference
	reason, message string
}

func ingressProblems(all []translate.Problem) (out []problem) {
	for _, p := range all {
		out = append(out, problem{corev1.ObjectReference{
			APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Namespace: p.Ingress.Namespace, Name: p.Ingress.Name,
			UID: p.Ingress.UID, ResourceVersion: p.Ingress.ResourceVersion,
		}, p.Reason, p.Message})
	}
	return out
}

// defaultClass makes our class the default one, unless there is another or somebody has said whether it is.
func (w *statusWriter) defaultClass(ctx context.Context, classes []*networkingv1.IngressClass) error {
	value := "true"
	var own *networkingv1.IngressClass
	for _, c := range classes {
		switch {
		case c.Name == translate.Class:
			own = c
		case c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true":
			value = "false"
		}
	}
	if own == nil {
		return nil
	}
	if now, decided := own.Annotations[networkingv1.AnnotationIsDefaultIngressClass]; decided && (now != "true" || value == "true") {
		return nil
	}
	err := kube.MergePatch(ctx, w.client.NetworkingV1().IngressClasses(), own.Name, map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{networkingv1.AnnotationIsDefaultIngressClass: value}},
	})
	return notGone(err)
}

// write gives an Ingress its addresses.
func (w *statusWriter) write(ctx context.Context, i *networkingv1.Ingress, addresses []string) error {
	want := []networkingv1.IngressLoadBalancerIngress{}
	for _, a := range addresses {
		want = append(want, networkingv1.IngressLoadBalancerIngress{IP: a})
		w.had[a] = true
	}
	w.written[i.UID] = want
	if equality.Semantic.DeepEqual(i.Status.LoadBalancer.Ingress, want) || len(i.Status.LoadBalancer.Ingress)+len(want) == 0 {
		return nil
	}
	return notGone(kube.MergePatch(ctx, w.client.NetworkingV1().Ingresses(i.Namespace), i.Name, map[string]any{
		"metadata": map[string]any{"uid": i.UID}, // not one that was created anew under this name
		"status":   map[string]any{"loadBalancer": map[string]any{"ingress": want}},
	}, "status"))
}

// notGone forgets the error of an object that is not there any more, or is another one.
func notGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// tell sends an Event for each problem, once while it lasts.
func (w *statusWriter) tell(ctx context.Context, problems []problem) error {
	var errs []error
	now := map[string]bool{}
	for _, p := range problems {
		key := string(p.UID) + p.reason + p.message
		if now[key] {
			continue
		}
		if !w.told[key] {
			source := corev1.EventSource{Component: "coracle-gateway", Host: w.Self}
			if err := kube.SendEvent(ctx, w.client, source, p.ObjectReference, corev1.EventTypeWarning, p.reason, p.message); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		now[key] = true
	}
	w.told = now
	return errors.Join(errs...)
}

// mostNamed is how many objects with problems are named in a report.
const mostNamed = 20

// report returns what coracle status and doctor are told.
func report(ingresses, gateways int, problems []problem) Report {
	r := Report{Served: ingresses, Gateways: gateways}
	seen := map[types.UID]bool{}
	for _, p := range problems { // of each object the first one
		if seen[p.UID] {
			continue
		}
		seen[p.UID] = true
		if len(seen) <= mostNamed {
			r.Problems = append(r.Problems, Problem{Kind: p.Kind, Name: p.Namespace + "/" + p.Name, Text: p.message})
		}
	}
	r.Others = max(len(seen)-mostNamed, 0)
	return r
}

// with adds problems.
func (r Report) with(further []Problem) Report {
	space := min(len(further), max(0, mostNamed-len(r.Problems)))
	r.Problems = append(r.Problems, further[:space]...)
	r.Others += len(further) - space
	return r
}
