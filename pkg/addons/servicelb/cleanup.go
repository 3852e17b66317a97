package servicelb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// cleanUp removes addresses and finalizer from Services whose type has changed, and queries that an earlier leader left in
// Nodes although no Service requests ports any more.
func (c *controller) cleanUp(ctx context.Context) error {
	if err := releaseAll(ctx, c.client, func(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeLoadBalancer }); err != nil {
		return err
	}
	if len(c.services())+len(c.gateways()) > 0 {
		return nil // sync writes the queries
	}
	return withdrawQueries(ctx, c.client)
}

// releaseAll removes addresses and finalizer from the selected Services of this package.
func releaseAll(ctx context.Context, client kubernetes.Interface, selected func(*corev1.Service) bool) error {
	all, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
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

// withdrawQueries removes from all Nodes the queries, and that they may announce addresses.
func withdrawQueries(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var errs []error
	for _, n := range nodes.Items {
		for _, key := range []string{askedAnnotation, kube.AnnouncesAnnotation} {
			if n.Annotations[key] != "" {
				errs = append(errs, annotate(ctx, client, n.Name, key, ""))
			}
		}
	}
	return errors.Join(errs...)
}

// removalPause is the pause after a failed try to remove everything.
const removalPause = time.Second

// Removal runs instead of Balancers while the add-on is disabled. It removes the addresses and the finalizer from the
// Services that Balancers served; otherwise the finalizer would block their deletion.
type Removal struct {
	// Kubeconfig may list and change Services and Nodes.
	Kubeconfig string
}

// Run is ready at once, and waits for ctx when its work is done.
func (r Removal) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, r.Kubeconfig)
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
	_ = wait.PollUntilContextCancel(ctx, removalPause, true, func(ctx context.Context) (bool, error) {
		err := errors.Join(releaseAll(ctx, client, func(*corev1.Service) bool { return true }), withdrawQueries(ctx, client))
		if err != nil && ctx.Err() == nil {
			logrus.WithField("component", "servicelb").WithError(err).Warn("removing addresses from Services; trying again")
		}
		return err == nil, nil
	})
}
