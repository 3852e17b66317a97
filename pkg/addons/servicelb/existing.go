package servicelb

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
)

// Existing warns once about Services that have a port of an address which the admission plugin would refuse now: they are
// from before the plugin, or from before a node had the address. They are left as they are.
type Existing struct {
	// Kubeconfig may list Services and Nodes and create Events.
	Kubeconfig string
	Config     config.Config
}

// Run is ready at once, and waits for ctx when its work is done.
func (e Existing) Run(ctx context.Context, ready func()) error {
	client, err := kube.FencedClient(ctx, e.Kubeconfig)
	if err != nil {
		return err
	}
	ready()
	p := newPlugin(e.Config)
	p.client = client
	_ = wait.PollUntilContextCancel(kube.WithComponent(ctx, "service-ports"), time.Second, true, func(ctx context.Context) (bool, error) {
		err := p.warn(ctx, client)
		if err != nil && ctx.Err() == nil {
			logrus.WithField("component", "service-ports").WithError(err).Warn("looking for Services with ports of coracle; trying again")
		}
		return err == nil, nil
	})
	<-ctx.Done()
	return nil
}

func (p *plugin) warn(ctx context.Context, client kubernetes.Interface) error {
	o, err := p.owners(ctx, true)
	if err != nil {
		return err
	}
	all := o.services
	o.services = nil // only what belongs to coracle
	var errs []error
	for i := range all {
		s := &all[i]
		for _, c := range claimsOf(s) {
			if taken := p.refuse(o, c, s); taken != nil {
				logrus.WithField("component", "service-ports").Warnf("Service %s/%s: %v", s.Namespace, s.Name, taken)
				errs = append(errs, tell(ctx, client, s, corev1.EventTypeWarning, "PortReserved", taken.Error()))
				break
			}
		}
	}
	return errors.Join(errs...)
}
