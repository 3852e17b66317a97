package servicelb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/core/addon"
)

// versionServices makes a fake API give Services a new resource version with each write, as a real one does. Without
// versions the controller cannot know that the watch is behind its own writes.
func versionServices(client *fake.Clientset) {
	var version atomic.Int64
	client.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchActionImpl)
		patch := map[string]map[string]any{}
		if err := json.Unmarshal(p.Patch, &patch); err != nil {
			return true, nil, err
		}
		if patch["metadata"] == nil {
			patch["metadata"] = map[string]any{}
		}
		patch["metadata"]["resourceVersion"] = fmt.Sprint(1 + version.Add(1))
		var err error
		if p.Patch, err = json.Marshal(patch); err != nil {
			return true, nil, err
		}
		return clienttesting.ObjectReaction(client.Tracker())(p)
	})
}

// TestRun lets the controller work on Services from their creation on.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client := fake.NewClientset(member("a", "10.0.0.1"), member("b", "10.0.0.2", silent))
	versionServices(client)
	stopped := make(chan error, 1)
	go func() {
		stopped <- (Balancers{Gateways: addon.NewGatewayAddresses(false, false), NodePorts: "30000-32767", Reserved: reserved}).run(ctx, client)
	}()
	services := client.CoreV1().Services("default")
	await := func(name, what string, ok func(*corev1.Service) bool) *corev1.Service {
		t.Helper()
		for {
			s, err := services.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatalf("waiting for %s: %v", what, err)
			}
			if ok(s) {
				return s
			}
			if ctx.Err() != nil {
				t.Fatalf("it has no %s: %+v", what, s)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	create := func(s *corev1.Service) {
		t.Helper()
		s.ResourceVersion = "1"
		if _, err := services.Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(lb("web", 0, "80"))
	web := await("web", "addresses", func(s *corev1.Service) bool { return ipsOf(s) == "10.0.0.1, 10.0.0.2" })
	if !slices.Contains(web.Finalizers, finalizer) || !strings.Contains(condition(web, readyCondition).Message, "was not checked on node b") {
		t.Errorf("it became %+v", web)
	}
	n, err := client.CoreV1().Nodes().Get(ctx, "a", metav1.GetOptions{})
	if err != nil || n.Annotations[askedAnnotation] != "80/TCP" {
		t.Errorf("the node was asked %q, %v", n.Annotations[askedAnnotation], err)
	}
	create(lb("other", 1, "80"))
	await("other", "a refusal", func(s *corev1.Service) bool {
		c := condition(s, corev1.LoadBalancerPortsError)
		return c != nil && c.Message == "port 80/TCP is held by Service default/web on nodes a, b"
	})
	if err := services.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil { // this API deletes it although it has a finalizer
		t.Fatal(err)
	}
	await("other", "what the first one had", func(s *corev1.Service) bool {
		return ipsOf(s) == "10.0.0.1, 10.0.0.2" && condition(s, corev1.LoadBalancerPortsError) == nil
	})
	var events *corev1.EventList
	for events == nil || len(events.Items) < 3 { // an Event follows its change
		if events, err = client.CoreV1().Events("default").List(ctx, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if ctx.Err() != nil {
			t.Fatalf("the events are %v", events.Items)
		}
		time.Sleep(5 * time.Millisecond)
	}
	var all []string
	for _, e := range events.Items {
		all = append(all, e.InvolvedObject.Name+" "+e.Reason)
	}
	slices.Sort(all)
	if want := "[other PortTaken other UpdatedLoadBalancer web UpdatedLoadBalancer]"; fmt.Sprint(all) != want {
		t.Errorf("the events are %v, not %s", all, want)
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}

	hiccup := true
	client.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		defer func() { hiccup = false }()
		return hiccup, nil, errors.New("not now")
	})
	removal(t.Context(), client)
	other, err := services.Get(t.Context(), "other", metav1.GetOptions{})
	if err != nil || len(other.Finalizers)+len(other.Status.LoadBalancer.Ingress)+len(other.Status.Conditions) > 0 {
		t.Errorf("switched off, it became %+v, %v", other, err)
	}
	n, err = client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	if _, asked := n.Annotations[askedAnnotation]; asked || err != nil {
		t.Errorf("the node is still asked, %v", err)
	}
}

// TestFailing sees that a Service which cannot be written does not keep others from what they await.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := fake.NewClientset(member("a", "10.0.0.1", silent), lb("bad", 0, "443"))
		client.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.(clienttesting.PatchAction).GetName() == "bad", nil, errors.New("refused")
		})
		stopped := make(chan error, 1)
		go func() {
			stopped <- (Balancers{Gateways: addon.NewGatewayAddresses(false, false), NodePorts: "30000-32767"}).run(ctx, client)
		}()
		time.Sleep(5 * time.Minute)
		if _, err := client.CoreV1().Services("default").Create(ctx, lb("web", 1, "80"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(answerTimeout + time.Second)
		web, err := client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil || ipsOf(web) != "10.0.0.1" {
			t.Errorf("after the node's silence it has %s, %v", ipsOf(web), err)
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// TestLetGo sees that what another balancer has left on a Service stays its own to clean up.
func TestLetGo(t *testing.T) {
	own, other := lb("own", 0, "80", has("10.0.0.1")), lb("other", 1, "80", has("192.0.2.1"))
	own.Status.Conditions = []metav1.Condition{{Type: readyCondition, Status: metav1.ConditionTrue}}
	client := fake.NewClientset()
	c := &controller{Balancers: Balancers{Gateways: addon.NewGatewayAddresses(false, false)}, client: client, feed: newFeed(client)}
	for _, s := range []*corev1.Service{own, other} {
		s.Spec.Type, s.Finalizers = corev1.ServiceTypeClusterIP, []string{finalizer}
		if _, err := client.CoreV1().Services(s.Namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.cleanUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{"own": false, "other": true} {
		s, err := client.CoreV1().Services(own.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || (len(s.Finalizers) > 0) != stays || (len(s.Status.LoadBalancer.Ingress) > 0) != stays {
			t.Errorf("%s became %+v, %v", name, s, err)
		}
	}
}

// TestUncheckedBefore: what a node was not asked about in time is still asked by the next leader.
func TestUncheckedBefore(t *testing.T) {
	in := snapshot{services: []*corev1.Service{lb("ssh", 0, "22")}, now: time.Unix(5000, 0)}
	var all []string
	for i, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		all = append(all, fmt.Sprintf("10.0.0.%d", i+1))
		in.nodes = append(in.nodes, member(name, all[i], silent))
	}
	for range 3 { // questions, patience, addresses
		in, _ = step(in)
	}
	if got := ipsOf(in.services[0]); got != strings.Join(all, ", ") {
		t.Fatalf("it got %s", got)
	}
	in.since = uncheckedBefore(in.services, in.now) // all that the next one knows
	for _, i := range []int{0, 6} {
		in.nodes[i] = member(in.nodes[i].Name, all[i], says("22/TCP", `,"held":{"22/TCP":"sshd (pid 7)"}`))
	}
	in, _ = step(in)
	if got := ipsOf(in.services[0]); got != strings.Join(all[1:6], ", ") {
		t.Errorf("the addresses are %s", got)
	}
	in.since = uncheckedBefore(in.services, in.now)
	for i := range 6 {
		in.nodes[i] = member(in.nodes[i].Name, all[i])
	}
	for range 2 {
		in, _ = step(in)
	}
	if got := uncheckedBefore(in.services, in.now); len(got) > 0 {
		t.Errorf("still unchecked: %v", got)
	}
}

func TestShadows(t *testing.T) {
	held := says("80/TCP", `,"held":{"80/TCP":"nginx (pid 7)"}`)
	in := snapshot{services: []*corev1.Service{lb("web", 0, "80", has("10.0.0.1"))}, nodes: []*corev1.Node{member("a", "10.0.0.1", held)}}
	got := in.plan(nil).outcomes[0].shadows
	if len(got) != 1 || !strings.Contains(got[0].text, "port 80/TCP of node a is in use by nginx (pid 7) as well") {
		t.Errorf("got %v", got)
	}
	client := fake.NewClientset()
	c := &controller{Balancers: Balancers{Gateways: addon.NewGatewayAddresses(false, false)}, client: client, shadowed: map[shadowed]bool{}}
	for _, pid := range []string{"7", "8"} { // it was started again
		in.nodes = []*corev1.Node{member("a", "10.0.0.1", says("80/TCP", `,"held":{"80/TCP":"nginx (pid `+pid+`)"}`))}
		if err := c.reportShadows(t.Context(), in.plan(nil).outcomes[0], &sync.Mutex{}); err != nil {
			t.Fatal(err)
		}
	}
	if events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(events.Items) != 1 {
		t.Errorf("the events are %v, %v", events, err)
	}
	for _, gone := range []snapshot{{services: in.services, nodes: []*corev1.Node{member("b", "10.0.0.2")}}, {services: []*corev1.Service{lb("next", 1, "80")}, nodes: in.nodes}} {
		if c.forget(in); len(c.shadowed) != 1 {
			t.Fatalf("it remembers %v", c.shadowed)
		}
		before := maps.Clone(c.shadowed)
		if c.forget(gone); len(c.shadowed) != 0 {
			t.Errorf("it still remembers %v", c.shadowed)
		}
		c.shadowed = before
	}
	in.nodes = []*corev1.Node{member("a", "10.0.0.1")}
	if got := in.plan(nil).outcomes[0].shadows; len(got) > 0 {
		t.Errorf("without anybody else: %v", got)
	}
}

func TestQuestion(t *testing.T) {
	ports := parsePorts("443/TCP,80/TCP,53/UDP,53/TCP,80/TCP,nonsense,0/TCP,70000/TCP,80")
	if got, want := formatPorts(ports), "53/TCP,53/UDP,80/TCP,443/TCP"; got != want {
		t.Errorf("got %q, not %q", got, want)
	}
	if formatPorts(nil) != "" || len(parsePorts("")) != 0 {
		t.Error("nothing is asked, and spelled as something")
	}
}
