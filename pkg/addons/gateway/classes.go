package gateway

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// makeClasses makes the further classes that there are not. One of another controller stays as it is: that controller may still be in use, and
// its installation takes the class away with it. Then the class is made anew.
func (w *statusWriter) makeClasses(ctx context.Context, classes []*networkingv1.IngressClass) error {
	if classes == nil {
		return nil // nothing is known yet: our own class is always there
	}
	var errs []error
	for _, name := range w.Classes {
		if slices.ContainsFunc(classes, func(c *networkingv1.IngressClass) bool { return c.Name == name }) {
			continue
		}
		class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: translate.Controller}}
		if _, err := w.client.NetworkingV1().IngressClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// foreignClasses returns the names of classes of other controllers.
func foreignClasses(classes []*networkingv1.IngressClass) map[string]bool {
	out := map[string]bool{}
	for _, c := range classes {
		out[c.Name] = translate.Foreign(c)
	}
	return out
}

// mayWrite reports whether the status of an Ingress of another controller's class is for us to write. While that controller runs, it writes
// addresses, which can be those of our servers, and two that write would do so for ever; when it ends, it takes them away.
func (w *statusWriter) mayWrite(i *networkingv1.Ingress, nodes []*corev1.Node) bool {
	now := i.Status.LoadBalancer.Ingress
	if last, wrote := w.written[i.UID]; len(now) == 0 || wrote {
		return len(now) == 0 || equality.Semantic.DeepEqual(now, last)
	}
	own := map[string]bool{}
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			own[a.Address] = true
		}
	}
	return !slices.ContainsFunc(now, func(a networkingv1.IngressLoadBalancerIngress) bool { return !own[a.IP] && !w.had[a.IP] })
}
