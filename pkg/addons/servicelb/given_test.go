package servicelb

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-dev/coracle/pkg/core/addon"
)

// TestSameTime: an address that comes to two Services at the same time, because neither was there when the other was checked, is taken from the load balancer.
func TestSameTime(t *testing.T) {
	for name, tt := range map[string]struct {
		late      time.Duration // when the other Service is written, after the address is
		conflicts bool          // the load balancer is changed by somebody when the address is to be taken from it
	}{
		"before the address is written":   {},
		"after that":                      {late: settleTime / 2},
		"while the load balancer changes": {conflicts: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				client := fake.NewClientset(member("a", "10.0.0.1", silent), member("b", "10.0.0.2", silent))
				versionServices(client)
				watchBalanced(client)
				other := lb("other", 1, "80")
				other.Spec.Type, other.Spec.ClusterIP, other.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, "10.43.0.7", []string{"10.0.0.1"}
				write := func() { _ = client.Tracker().Add(other) }
				var given, taken sync.Once
				client.PrependReactor("patch", "services", func(a clienttesting.Action) (handled bool, _ runtime.Object, err error) {
					switch text := string(a.(clienttesting.PatchAction).GetPatch()); {
					case strings.Contains(text, "10.0.0.1"):
						given.Do(func() {
							if tt.late == 0 {
								write()
							} else {
								time.AfterFunc(tt.late, write)
							}
						})
					case strings.Contains(text, "10.0.0.2") && tt.conflicts:
						taken.Do(func() { handled, err = true, apierrors.NewConflict(corev1.Resource("services"), "web", nil) })
					}
					return handled, nil, err
				})
				client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, nil // their names are times: in this test several have the same
				})
				stopped := make(chan error, 1)
				go func() {
					stopped <- (Balancers{Gateways: addon.NewGatewayAddresses(false, false), NodePorts: "30000-32767"}).run(ctx, client)
				}()
				web := lb("web", 0, "80")
				web.ResourceVersion = "1"
				if _, err := client.CoreV1().Services("default").Create(ctx, web, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(answerTimeout + 2*settleTime)
				web, err := client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
				if err != nil || ipsOf(web) != "10.0.0.2" {
					t.Errorf("it has %s, %v", ipsOf(web), err)
				}
				cancel()
				if err := <-stopped; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// watchBalanced makes watches of Services show those of type LoadBalancer only. Fakes ignore the field selector.
func watchBalanced(client *fake.Clientset) {
	client.PrependWatchReactor("services", func(a clienttesting.Action) (bool, watch.Interface, error) {
		all, err := client.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.(clienttesting.WatchActionImpl).ListOptions)
		if err != nil {
			return true, nil, err
		}
		return true, watch.Filter(all, func(e watch.Event) (watch.Event, bool) {
			s, ok := e.Object.(*corev1.Service)
			return e, !ok || s.Spec.Type == corev1.ServiceTypeLoadBalancer
		}), nil
	})
}
