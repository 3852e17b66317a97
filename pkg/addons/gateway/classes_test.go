package gateway

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

// TestMakeClasses: a class that there is not is made ours, and one of another controller is left alone.
func TestMakeClasses(t *testing.T) {
	other := class("nginx", "")
	other.Spec.Controller = "k8s.io/ingress-nginx"
	client := fake.NewClientset(other)
	w := writer(client)
	w.Classes = []string{"nginx", "traefik"}
	for range 2 {
		if err := w.makeClasses(t.Context(), []*networkingv1.IngressClass{other}); err != nil {
			t.Fatal(err)
		}
	}
	for name, controller := range map[string]string{"nginx": other.Spec.Controller, "traefik": translate.Controller} {
		got, err := client.NetworkingV1().IngressClasses().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || got.Spec.Controller != controller {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}

// TestTwoControllers: while another controller gives an Ingress its addresses, they stay.
func TestTwoControllers(t *testing.T) {
	server := &corev1.Node{Status: corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	nginx := class("nginx", "")
	nginx.Spec.Controller = "k8s.io/ingress-nginx"
	for _, c := range []struct {
		name  string
		has   []networkingv1.IngressLoadBalancerIngress
		class *networkingv1.IngressClass
		want  string
	}{
		{"none yet", nil, nginx, "192.0.2.1"},
		{"the other's", []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.9"}}, nginx, "192.0.2.9"},
		{"the other's and ours", []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.9"}, {IP: "192.0.2.1"}}, nginx, "192.0.2.9"},
		{"left by the other, whose class is gone", []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.9"}}, class("nginx", ""), "192.0.2.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.class.Spec.Controller == "" {
				c.class.Spec.Controller = translate.Controller
			}
			i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}, Spec: networkingv1.IngressSpec{IngressClassName: &c.class.Name}}
			i.Status.LoadBalancer.Ingress = c.has
			client := fake.NewClientset(i, c.class)
			w := writer(client)
			w.outcome.classes, w.outcome.all, w.outcome.nodes = []*networkingv1.IngressClass{c.class}, []*networkingv1.Ingress{i}, []*corev1.Node{server}
			w.outcome.Served = []*networkingv1.Ingress{i}
			if err := w.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := client.NetworkingV1().Ingresses("shop").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil || len(got.Status.LoadBalancer.Ingress) == 0 || got.Status.LoadBalancer.Ingress[0].IP != c.want {
				t.Errorf("%+v %v", got.Status, err)
			}
		})
	}
}

// TestOtherControllerWithOurAddresses: of two controllers that publish the addresses of the same servers ours does not write again what the other one
// has changed, and does when the other one has taken its own away.
func TestOtherControllerWithOurAddresses(t *testing.T) {
	var nodes []*corev1.Node
	for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
		nodes = append(nodes, &corev1.Node{Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}})
	}
	nginx := class("nginx", "")
	nginx.Spec.Controller = "k8s.io/ingress-nginx"
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}, Spec: networkingv1.IngressSpec{IngressClassName: &nginx.Name}}
	client := fake.NewClientset(i, nginx)
	w := writer(client)
	for n, step := range []struct {
		change      bool
		other, want []string
		nodes       []*corev1.Node
	}{
		{false, nil, []string{"192.0.2.1", "192.0.2.2"}, nodes},
		{true, []string{"192.0.2.1"}, []string{"192.0.2.1"}, nodes},
		{true, []string{"192.0.2.1"}, []string{"192.0.2.1"}, nodes},
		{true, nil, []string{"192.0.2.1", "192.0.2.2"}, nodes},
		{false, nil, []string{"192.0.2.2"}, nodes[1:]},
	} {
		if step.change {
			i.Status.LoadBalancer.Ingress = nil
			for _, a := range step.other {
				i.Status.LoadBalancer.Ingress = append(i.Status.LoadBalancer.Ingress, networkingv1.IngressLoadBalancerIngress{IP: a})
			}
			if _, err := client.NetworkingV1().Ingresses("shop").UpdateStatus(t.Context(), i, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.outcome.classes, w.outcome.all, w.outcome.nodes = []*networkingv1.IngressClass{nginx}, []*networkingv1.Ingress{i}, step.nodes
		w.outcome.Served = []*networkingv1.Ingress{i}
		if err := w.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var err error
		if i, err = client.NetworkingV1().Ingresses("shop").Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range i.Status.LoadBalancer.Ingress {
			got = append(got, a.IP)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: %v, want %v", n, got, step.want)
		}
	}
}
