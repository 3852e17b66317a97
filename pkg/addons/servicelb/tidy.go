package servicelb

import (
	"context"
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
)

// tidy takes back what an earlier leader could not: at Services whose type has changed, and at Nodes if nobody wants
// ports any more.
func (c *controller) tidy(ctx context.Context) error {
	if err := releaseAll(ctx, c.client, func(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeLoadBalancer }); err != nil {
		return err
	}
	if len(c.services()) > 0 {
		return nil // sync knows better what is to be asked
	}
	return askNothing(ctx, c.client)
}

// releaseAll takes what is ours off those of our Services that are meant.
func releaseAll(ctx context.Context, client kubernetes.Interface, meant func(*corev1.Service) bool) error {
	all, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	var errs []error
	for i := range all.Items {
		if s := &all.Items[i]; condition(s, readyCondition) != nil && meant(s) {
			_, err := patch(ctx, client, s, released(s))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// askNothing takes the questions off all Nodes.
func askNothing(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var errs []error
	for _, n := range nodes.Items {
		if n.Annotations[askedAnnotation] != "" {
			errs = append(errs, ask(ctx, client, n.Name, ""))
		}
	}
	return errors.Join(errs...)
}

// Removal runs in place of Balancers where load balancers are switched off: it takes the addresses off the Services
// that Balancers once served. Without it they could not even be deleted.
type Removal struct {
	// Kubeconfig may list and change Services and Nodes.
	Kubeconfig string
}

// Run is ready at once, and idle when its work is done.
func (r Removal) Run(ctx context.Context, ready func()) error {
	client, err := kube.Client(r.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	removal(kube.WithComponent(ctx, "servicelb"), client)
	<-ctx.Done()
	return nil
}

// removal returns when nothing of ours is left, or ctx is done.
func removal(ctx context.Context, client kubernetes.Interface) {
	for pause := firstPause; ; pause = min(pause*2, lastPause) {
		err := errors.Join(
			releaseAll(ctx, client, func(*corev1.Service) bool { return true }),
			askNothing(ctx, client),
		)
		if err == nil || ctx.Err() != nil {
			return
		}
		logrus.WithField("component", "servicelb").WithError(err).Warn("taking back what load balancers have left; trying again")
		if lifecycle.Sleep(ctx, pause) != nil {
			return
		}
	}
}
