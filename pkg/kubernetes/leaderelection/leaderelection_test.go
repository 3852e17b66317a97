package leaderelection

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestMain(m *testing.M) {
	logrus.SetLevel(logrus.PanicLevel)
	m.Run()
}

// server runs a Leadership, without a group.
type server struct {
	*Leadership
	ready chan struct{} // receives when it begins to lead
	lost  chan error
	stop  func()
	ended chan error
}

func start(t *testing.T, client kubernetes.Interface, name string, several bool) server {
	t.Helper()
	s := server{
		Leadership: New("", name, func(context.Context) (bool, error) { return several, nil }),
		ready:      make(chan struct{}, 1), lost: make(chan error, 1), ended: make(chan error, 1),
	}
	s.withdraw = func(_ context.Context, why error) error {
		s.lost <- why
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.stop = cancel
	go func() {
		s.ended <- s.run(ctx, client, func() {
			select {
			case s.ready <- struct{}{}:
			default: // as a group does it
			}
		})
	}()
	return s
}

func (s server) leads() bool {
	synctest.Wait()
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// holder is who has the Lease; "none" if there is no such object.
func holder(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	l, err := client.CoordinationV1().Leases(namespace).Get(t.Context(), lease, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return "none"
	}
	return *l.Spec.HolderIdentity
}

// nextTry is the longest time between two looks of a waiting server at the Lease.
const nextTry = time.Duration((1 + leaderelection.JitterFactor) * float64(retryPeriod))

// heldBy is the Lease as the named server writes it when it leads: those who wait honour the duration that stands in it.
func heldBy(name string) *coordinationv1.Lease {
	seconds, now := int32(leaseDuration/time.Second), metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now},
	}
}

func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		a := start(t, client, "a", false)
		if !a.leads() {
			t.Error("a lone server does not lead at once")
		}
		time.Sleep(time.Hour)
		if n := len(client.Actions()); n != 0 {
			t.Errorf("%d requests of a lone server", n)
		}
		a.stop()
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
	})
}

func TestSecondServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(heldBy("of-old-times"))
		a := start(t, client, "a", false)
		began := time.Now()
		for range 2 { // two join at once
			if err := a.Contest(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 0 || holder(t, client) != "a" {
			t.Errorf("after %s the Lease is %s's", took, holder(t, client))
		}
		b := start(t, client, "b", true)
		if err := b.Contest(t.Context()); err != nil { // a third one joins at the second
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if b.leads() {
			t.Error("two servers lead")
		}
		a.stop()
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		time.Sleep(nextTry)
		if !b.leads() {
			t.Errorf("nobody leads after the leader's orderly end: the Lease is %q's", holder(t, client))
		}
		b.stop()
		<-b.ended
	})
}

func TestLeaderDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(heldBy("dead"))
		a := start(t, client, "a", true)
		time.Sleep(leaseDuration - time.Millisecond)
		if a.leads() {
			t.Error("a Lease was taken that had not expired")
		}
		time.Sleep(nextTry + time.Millisecond)
		if !a.leads() || holder(t, client) != "a" {
			t.Errorf("the Lease is still %s's", holder(t, client))
		}
		a.stop()
		<-a.ended
	})
}

func TestOwnLeaseAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := start(t, fake.NewClientset(heldBy("a")), "a", true)
		if !a.leads() {
			t.Error("a server waits for its own Lease")
		}
		a.stop()
		<-a.ended
	})
}

// harmed is an API whose Leases fail while a test wants it.
type harmed struct {
	*fake.Clientset
	fails atomic.Pointer[ktesting.ReactionFunc]
}

func newHarmed() *harmed {
	h := &harmed{Clientset: fake.NewClientset()}
	h.PrependReactor("*", "leases", func(action ktesting.Action) (bool, runtime.Object, error) {
		if fails := h.fails.Load(); fails != nil {
			return (*fails)(action)
		}
		return false, nil, nil
	})
	return h
}

// refuse makes a verb fail, "*" all.
func (h *harmed) refuse(verb, why string) {
	h.fails.Store(new(ktesting.ReactionFunc(func(action ktesting.Action) (bool, runtime.Object, error) {
		if verb == "*" || action.GetVerb() == verb {
			return true, nil, errors.New(why)
		}
		return false, nil, nil
	})))
}

// taken makes another server hold the Lease.
func taken(h *harmed) {
	_ = h.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), heldBy("thief"), namespace)
	h.refuse("update", "conflict")
}

func TestLost(t *testing.T) {
	away := func(h *harmed) { h.refuse("*", "connection refused") }
	for name, c := range map[string]struct {
		several bool
		harm    func(*harmed)
		want    string
		took    time.Duration
	}{
		"taken":             {true, taken, "server thief leads now", retryPeriod},
		"API away":          {true, away, "could not be renewed for 8s", retryPeriod + renewDeadline},
		"taken, once alone": {false, taken, "server thief leads now", retryPeriod},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newHarmed()
				a := start(t, client.Clientset, "a", c.several)
				if !a.leads() {
					t.Fatal("it does not lead")
				}
				if err := a.Contest(t.Context()); err != nil {
					t.Fatal(err)
				}
				a.leads() // a lone one says so again
				for range 3 {
					began := time.Now()
					c.harm(client)
					if err := <-a.lost; err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("got %v, want %q", err, c.want)
					}
					if took := time.Since(began); took > c.took || took >= leaseDuration {
						t.Errorf("it led for %s without a Lease, want %s at most", took, c.took)
					}
					if a.leads() {
						t.Error("it leads again at once")
					}
					client.fails.Store(nil)
					time.Sleep(leaseDuration + nextTry)
					if !a.leads() || holder(t, client.Clientset) != "a" {
						t.Errorf("it does not lead again, the Lease is %s's", holder(t, client.Clientset))
					}
				}
				a.stop()
				if err := <-a.ended; err != nil || holder(t, client.Clientset) == "a" {
					t.Errorf("it ended with %v, and the Lease is %s's", err, holder(t, client.Clientset))
				}
			})
		})
	}
}

// TestLostForGood: if a controller does not stop, the process ends, and this server does not contend again.
func TestLostForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newHarmed()
		a := start(t, client.Clientset, "a", true)
		a.withdraw = func(context.Context, error) error { return errors.New("one still runs") }
		if !a.leads() {
			t.Fatal("it does not lead")
		}
		taken(client)
		time.Sleep(time.Minute)
		if a.leads() || holder(t, client.Clientset) != "thief" {
			t.Errorf("the Lease is %s's", holder(t, client.Clientset))
		}
		a.stop()
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
	})
}

// TestReleaseOfAnother: a server that stops gives back its own Lease only, not that of the server that has taken it.
func TestReleaseOfAnother(t *testing.T) {
	client := fake.NewClientset(heldBy("b"))
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease}, Client: client.CoordinationV1()}
	if err := release(lock, "a"); err == nil || holder(t, client) != "b" {
		t.Errorf("the Lease is %s's, and the error %v", holder(t, client), err)
	}
}

func TestContestGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New("", "a", nil).Contest(ctx); err == nil || !strings.Contains(err.Error(), "coracle-control-plane") {
		t.Errorf("got %v", err)
	}
}
