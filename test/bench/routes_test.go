package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/hosts"
)

const gatewayOfRoutes = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: routes}
spec: {gatewayClassName: coracle, listeners: [{name: http, port: 80, protocol: HTTP}]}
`

// measureRoutes measures the time from sending a change of one of n HTTPRoutes, each with a host of its own, to the API server until the gateway serves it, and the memory for them.
func measureRoutes(t *testing.T, wire *hosts.Wire, n, changes int, r *results) {
	h := hosts.New(t, wire, "routes", hosts.Options{})
	s, _ := start(t, h)
	h.Coracle("gateway-api")
	h.Apply(gatewayOfRoutes)
	config := h.RESTConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	makeRoutes(t, client, n)
	redirected(t, h, n-1, "first.test", 5*time.Minute)
	t.Logf("%d routes are served %.1f s after the first was sent", n, time.Since(began).Seconds())
	var took []float64
	for i := range changes {
		to := fmt.Sprintf("change-%d.test", i)
		began := time.Now()
		patch := fmt.Sprintf(`{"spec":{"rules":[%s]}}`, redirectTo(to))
		if err := client.Discovery().RESTClient().Patch(types.MergePatchType).AbsPath(routesPath, "route-1").Body([]byte(patch)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		redirected(t, h, 1, to, time.Minute)
		took = append(took, time.Since(began).Seconds())
	}
	slices.Sort(took)
	t.Logf("p50 %.3f s, p99 %.3f s", took[len(took)/2], took[len(took)*99/100])
	name := fmt.Sprintf("gateway: a change to effect at %d HTTPRoutes", n)
	r.add(name+", p50", "s", 0, took[len(took)/2])
	r.add(name+", p99", "s", 0, took[len(took)*99/100])
	for _, process := range []string{"gateway", state.ControlPlane} {
		r.add(fmt.Sprintf("gateway: private memory of %s at %d HTTPRoutes", process, n), "MB", 0, privateMemory(t, s, process))
	}
	stop(t, s)
	h.Kill()
}

const routesPath = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes"

func redirectTo(host string) string {
	return fmt.Sprintf(`{"filters":[{"type":"RequestRedirect","requestRedirect":{"hostname":%q}}]}`, host)
}

func makeRoutes(t *testing.T, client kubernetes.Interface, n int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(8)
	for i := range n {
		group.Go(func() error {
			return client.Discovery().RESTClient().Post().AbsPath(routesPath).Body([]byte(fmt.Sprintf(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"route-%d"},
				"spec":{"parentRefs":[{"name":"routes"}],"hostnames":["host-%d.test"],"rules":[%s]}}`, i, i, redirectTo("first.test")))).Do(ctx).Error()
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// redirected waits until the gateway redirects requests for a route to a host.
func redirected(t *testing.T, h *hosts.Host, route int, to string, within time.Duration) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return h.Dial(ctx, network, net.JoinHostPort(h.IP.String(), "80"))
		}}}
	defer client.CloseIdleConnections()
	var last string
	for began := time.Now(); time.Since(began) < within; <-time.After(time.Millisecond) {
		answer, err := client.Get(fmt.Sprintf("http://host-%d.test/", route))
		if err != nil {
			last = err.Error()
			continue
		}
		answer.Body.Close()
		if last = answer.Status + " to " + answer.Header.Get("Location"); answer.Header.Get("Location") == "http://"+to+"/" {
			return
		}
	}
	t.Fatalf("route %d does not lead to %s within %s: %s", route, to, within, last)
}
