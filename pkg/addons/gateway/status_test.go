package gateway

import (
	"errors"
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/addons/gateway/translate"
)

func writer(client *fake.Clientset) *statusWriter {
	return &statusWriter{
		Status: Status{Self: "server", Report: func(Report) {}, outcome: newOutcome()}, client: client,
		told: map[string]bool{}, written: map[types.UID][]networkingv1.IngressLoadBalancerIngress{}, had: map[string]bool{},
	}
}

func class(name, isDefault string) *networkingv1.IngressClass {
	c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if isDefault != "" {
		c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: isDefault}
	}
	return c
}

// TestDefaultClass: ours is the default class unless there is another, or somebody has decided that it is not.
func TestDefaultClass(t *testing.T) {
	for _, c := range []struct {
		own, other, want string
	}{
		{"", "", "true"},
		{"", "false", "true"},
		{"", "true", "false"},
		{"true", "", "true"},
		{"true", "true", "false"},
		{"false", "", "false"},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			own, other := class(translate.Class, c.own), class("other", c.other)
			client := fake.NewClientset(own, other)
			w := writer(client)
			if err := w.defaultClass(t.Context(), []*networkingv1.IngressClass{own, other}); err != nil {
				t.Fatal(err)
			}
			got, err := client.NetworkingV1().IngressClasses().Get(t.Context(), translate.Class, metav1.GetOptions{})
			if err != nil || got.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != c.want {
				t.Errorf("%v %v", got.Annotations, err)
			}
		})
	}
}

// TestEventsOnce: a problem is told once while it lasts, again when it comes back, and later when it could not be told.
func TestEventsOnce(t *testing.T) {
	client := fake.NewClientset()
	w := writer(client)
	broken := true
	client.PrependReactor("create", "events", func(ktesting.Action) (bool, runtime.Object, error) {
		if broken {
			return true, nil, errors.New("away")
		}
		return false, nil, nil
	})
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	taken := ingressProblems([]translate.Problem{{Ingress: i, Reason: "HostTaken", Message: "taken"}, {Ingress: i, Reason: "HostTaken", Message: "taken"}})
	for n, step := range []struct {
		broken   bool
		problems []problem
		want     int // Events by then
	}{{true, taken, 0}, {false, taken, 1}, {false, taken, 1}, {false, nil, 1}, {false, taken, 2}} {
		broken = step.broken
		if err := w.tell(t.Context(), step.problems); (err != nil) != step.broken {
			t.Errorf("step %d: %v", n, err)
		}
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(events.Items) != step.want {
			t.Errorf("step %d: %d Events, %v, want %d", n, len(events.Items), err, step.want)
		}
	}
}

// TestStatusOfAnotherClass: an Ingress that gets another class loses the addresses that it had from us.
func TestStatusOfAnotherClass(t *testing.T) {
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}}
	client := fake.NewClientset(i)
	w := writer(client)
	for _, addresses := range [][]string{{"192.0.2.1", "192.0.2.2"}, nil} {
		if err := w.write(t.Context(), i, addresses); err != nil {
			t.Fatal(err)
		}
		var err error
		if i, err = client.NetworkingV1().Ingresses("default").Get(t.Context(), "web", metav1.GetOptions{}); err != nil || len(i.Status.LoadBalancer.Ingress) != len(addresses) {
			t.Errorf("%v, %v, want %v", i.Status, err, addresses)
		}
	}
	before := len(client.Actions())
	if err := w.write(t.Context(), i, nil); err != nil || len(client.Actions()) != before {
		t.Errorf("a status that is right was written, %v", err)
	}
}

// TestReport: a report is short, however many Ingresses have problems.
func TestReport(t *testing.T) {
	var result translate.Result
	for n := range 30 {
		i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint(n))}}
		result.Served = append(result.Served, i)
		result.Problems = append(result.Problems, translate.Problem{Ingress: i, Message: "first"}, translate.Problem{Ingress: i, Message: "second"})
	}
	r := report(len(result.Served), 0, ingressProblems(result.Problems))
	if r.Served != 30 || len(r.Problems) != mostNamed || r.Others != 10 || len(lines(r)) != mostNamed+2 {
		t.Errorf("%+v", r)
	}
	if problems, _ := judge(r); len(problems) != mostNamed+1 {
		t.Errorf("%v", problems)
	}
}
