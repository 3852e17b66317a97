package servicelb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// settleTime is how long after a Service was given an address it is looked whether another Service was admitted with the same one as externalIPs. Its
// admission may have looked before, and neither knew of the other.
const settleTime = 5 * time.Second

// given are the ports of addresses that a Service was given.
type given struct {
	service types.UID
	claims  []claim
	at      time.Time
}

// grantsOf are the ports of addresses that the status of a Service lists.
func grantsOf(s *corev1.Service) (out []claim) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if addr, ok := parseAddr(i.IP); ok {
			for p := range granted(i) {
				out = append(out, claim{addr, p})
			}
		}
	}
	return out
}

// withdraw takes back what Services were given and another Service has as externalIPs. The next plan gives it to neither. It looks once more after
// settleTime; soon is when, 0 for never.
func (c *controller) withdraw(ctx context.Context) (soon time.Duration, err error) {
	if len(c.given) == 0 {
		return 0, nil
	}
	external, err := c.external(ctx)
	if err != nil {
		return settleTime, err
	}
	lost := map[types.UID][]claim{}
	for _, g := range c.given {
		for _, taken := range g.claims {
			if other, has := external[taken]; has && other.service != g.service {
				lost[g.service] = append(lost[g.service], taken)
			}
		}
	}
	for _, s := range c.services() {
		if len(lost[s.UID]) > 0 {
			err = errors.Join(err, c.take(ctx, s, lost[s.UID], external))
		}
	}
	if err != nil {
		return settleTime, err
	}
	c.given = slices.DeleteFunc(c.given, func(g given) bool { return time.Since(g.at) >= settleTime || len(lost[g.service]) > 0 })
	for _, g := range c.given {
		soon = max(soon, settleTime-time.Since(g.at))
	}
	return soon, nil
}

// take removes the addresses of claims from the status of a Service. If the Service changes at the same time it returns an error.
func (c *controller) take(ctx context.Context, s *corev1.Service, lost []claim, external map[claim]nodePort) error {
	changed := s.DeepCopy()
	changed.Status.LoadBalancer.Ingress = slices.DeleteFunc(changed.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		addr, ok := parseAddr(i.IP)
		return ok && slices.ContainsFunc(lost, func(l claim) bool { return l.addr == addr })
	})
	if len(changed.Status.LoadBalancer.Ingress) == len(s.Status.LoadBalancer.Ingress) {
		return nil // it does not have them any more
	}
	got, err := patch(ctx, c.client, s, changed)
	if err == nil && got == nil {
		err = fmt.Errorf("taking %s from Service %s/%s: it has changed meanwhile", lost[0].addr, s.Namespace, s.Name)
	}
	if err != nil {
		return err
	}
	c.remember(got)
	text := fmt.Sprintf("port %s of %s came to %s at the same time", lost[0].port, lost[0].addr, external[lost[0]].text)
	logrus.WithField("component", "servicelb").Warnf("Service %s/%s: %s", s.Namespace, s.Name, text)
	return tell(ctx, c.client, got, corev1.EventTypeWarning, portTaken, text)
}

// external returns the ports of external addresses that any Services have now, not as a cache knows.
func (c *controller) external(ctx context.Context) (map[claim]nodePort, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	all, err := c.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[claim]nodePort{}
	for i := range all.Items {
		s := &all.Items[i]
		s.Status.LoadBalancer.Ingress = nil
		for _, taken := range claimsOf(s) {
			out[taken] = nodePort{s.UID, "Service " + s.Namespace + "/" + s.Name + " (externalIPs)"}
		}
	}
	return out, nil
}
