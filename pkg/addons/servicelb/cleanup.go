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

// cleanUp removes what an earlier leader could not remove: from Services whose type has changed, and from Nodes if no Service
// requests ports any more.
func (c *controller) cleanUp(ctx context.Context) error {
	if err := releaseAll(ctx, c.client, func(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeLoadBalancer }); err != nil {
		return err
	}
	if len(c.services()) > 0 {
		return nil // sync writes the queries
	}
	return withdrawQueries(ctx, c.client)
}

// releaseAll removes addresses and finalizer from the selected Services of this package.
func releaseAll(ctx context.Context, client kubernetes.Interface, selected func(*corev1.Service) bool) error {
	all, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	var errs []error
	for i := range all.Items {
		if s := &all.Items[i]; condition(s, readyCondition) != nil && selected(s) {
			_, err := patch(ctx, client, s, released(s))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// withdrawQueries removes the queries from all Nodes.
func withdrawQueries(ctx context.Context, client kubernetes.Interface) error {
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

// Removal runs instead of Balancers while the add-on is disabled. It removes the addresses and the finalizer from the
// Services that Balancers served; otherwise the finalizer would block their deletion.
type Removal struct {
	// Kubeconfig may list and change Services and Nodes.
	Kubeconfig string
}

// Run is ready at once, and waits for ctx when its work is done.
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

// removal returns when everything is removed, or ctx is done.
func removal(ctx context.Context, client kubernetes.Interface) {
	for pause := firstPause; ; pause = min(pause*2, lastPause) {
		err := errors.Join(
			releaseAll(ctx, client, func(*corev1.Service) bool { return true }),
			withdrawQueries(ctx, client),
		)
		if err == nil || ctx.Err() != nil {
			return
		}
		logrus.WithField("component", "servicelb").WithError(err).Warn("removing addresses from Services; trying again")
		if lifecycle.Sleep(ctx, pause) != nil {
			return
		}
	}
}
