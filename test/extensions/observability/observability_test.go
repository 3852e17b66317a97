package observability

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestObservability shows what a cluster tells about itself.
func TestObservability(t *testing.T) {
	c := cluster.Start(t, "observability", cluster.Options{Config: "coracle", Images: []string{"busybox"}})
	spans := &Collector{}
	serve(t, c, spans)
	c.Run(t, "traces", func(t *testing.T, s cluster.Space) { traces(t, s, spans) })
	c.Run(t, "metrics", metrics)
	c.Run(t, "a client that goes away", func(t *testing.T, s cluster.Space) { givenUp(t, s, spans) })
	c.Run(t, "events", events)
}

// serve serves the collector in this process, behind a Service with the address that the settings name.
func serve(t *testing.T, c *cluster.Cluster, spans *Collector) {
	t.Helper()
	e := c.Expose(t)
	listener, err := net.Listen("tcp", net.JoinHostPort(e.Host, strconv.Itoa(e.Port)))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	otlp.RegisterTraceServiceServer(server, spans)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	c.Space(t).Play(t, "The collector's Service", "HOST="+e.Host, "PORT="+strconv.Itoa(e.Port))
}

// traces finds a request of this test at the API server and in etcd, a pod at the kubelet, and the request in the audit log.
func traces(t *testing.T, s cluster.Space, spans *Collector) {
	// The kubelet started before there was a collector, and loses spans while it cannot connect.
	wait(t, spans, "of the kubelet", func(s Span) bool { return s.Service == "kubelet" })
	s.Play(t, "A pod, at the kubelet")
	stranger := rest.AnonymousClientConfig(s.RESTConfig)
	stranger.BearerToken = strings.TrimSpace(s.Kubectl(t, "create", "token", "default"))
	unbelieved, trace, root := id(16), id(16), id(8)
	client := kubernetes.NewForConfigOrDie(Traced(stranger, unbelieved, root))
	if _, err := client.CoreV1().ConfigMaps(s.Namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a list by a ServiceAccount without rights: %v", err)
	}
	client = kubernetes.NewForConfigOrDie(Traced(s.RESTConfig, trace, root))
	began := time.Now()
	if _, err := client.CoreV1().ConfigMaps(s.Namespace).Create(t.Context(), &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "traced"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	server := wait(t, spans, "of the API server, for the request", func(s Span) bool {
		return s.Service == "apiserver" && s.Trace == trace && s.Parent == root && s.Name == "POST /api/v1/namespaces/{:namespace}/configmaps"
	})
	if found := spans.Find(func(s Span) bool { return s.Trace == unbelieved }); len(found) > 0 { // they would have been sent before
		t.Errorf("the trace of a client that is not believed has %v", found)
	}
	stored := wait(t, spans, "of etcd, for the transaction", func(s Span) bool {
		return s.Service == "etcd" && s.Trace == trace && strings.HasSuffix(s.Name, "etcdserverpb.KV/Txn")
	})
	asked := wait(t, spans, "of the API server, as etcd's client", func(s Span) bool { return s.Service == "apiserver" && s.Trace == trace && s.ID == stored.Parent })
	t.Logf("the request is in %s, %s and %s after %.1f s", server.Name, asked.Name, stored.Name, time.Since(began).Seconds())
	for at := asked; at.ID != server.ID; {
		at = wait(t, spans, "that is the parent of "+at.Name, func(s Span) bool { return s.Trace == trace && s.ID == at.Parent })
	}
	run := "runtime.v1.RuntimeService/RunPodSandbox"
	cluster.Eventually(t, func() error {
		synced := map[string]bool{}
		for _, span := range spans.Find(func(span Span) bool {
			return span.Service == "kubelet" && span.Name == "syncPod" && span.Attributes["k8s.pod"] == s.Namespace+"/watched"
		}) {
			synced[span.Trace] = true
		}
		if len(spans.Find(func(span Span) bool {
			return synced[span.Trace] && span.Service == "kubelet" && strings.HasSuffix(span.Name, run)
		})) == 0 {
			return fmt.Errorf("none of the %d traces of the pod at the kubelet has a span %s", len(synced), run)
		}
		return nil
	})
	s.Play(t, "The audit log", "CORACLE="+os.Getenv("CORACLE"), "CLUSTER="+s.Name, "NODE="+s.Nodes[0].Name, "AUDIT="+server.Attributes["audit-id"])
}

// wait returns the span that is meant when it has come. Spans are sent every five seconds.
func wait(t *testing.T, spans *Collector, what string, is func(Span) bool) Span {
	t.Helper()
	var found []Span
	cluster.Eventually(t, func() error {
		if found = spans.Find(is); len(found) == 0 {
			return fmt.Errorf("there is no span %s", what)
		}
		return nil
	})
	return found[0]
}

// id returns random digits for so many bytes.
func id(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// metrics reads the endpoints of docs/monitoring.md with the rights of docs/examples/monitoring.yaml, and without.
func metrics(t *testing.T, s cluster.Space) {
	s.Play(t, "Prometheus")
	allowed, other := strings.TrimSpace(s.Kubectl(t, "-n", "monitoring", "create", "token", "prometheus")), strings.TrimSpace(s.Kubectl(t, "create", "token", "default"))
	node := "https://" + net.JoinHostPort(s.Nodes[0].IP, "10250")
	for url, want := range map[string][]string{
		s.RESTConfig.Host + "/metrics": {"apiserver_request_total", "etcd_server_has_leader", "scheduler_pending_pods"},
		node + "/metrics":              {"kubelet_running_pods", "containerd_cri_sandbox_create_network_seconds", "coredns_panics_total"},
		node + "/metrics/cadvisor":     {"container_cpu_usage_seconds_total"},
	} {
		families, err := scrape(t.Context(), s.RESTConfig, allowed, url)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("%s has %d families", url, len(families))
		for _, name := range want {
			if families[name] == nil {
				t.Errorf("%s has no %s", url, name)
			}
		}
		if _, err := scrape(t.Context(), s.RESTConfig, other, url); err == nil || !strings.Contains(err.Error(), "403 Forbidden") {
			t.Errorf("%s for a ServiceAccount without rights: %v", url, err)
		}
	}
}

// givenUp cancels a list that the API server waits for, which then gives it up too.
func givenUp(t *testing.T, s cluster.Space, spans *Collector) {
	asked, gone := make(chan struct{}, 10), make(chan struct{}, 10)
	s.ServeAPI(t, s.Serve(t, Slow{asked, gone}), "slow.example.org", "v1")
	trace, root := id(16), id(8)
	client := kubernetes.NewForConfigOrDie(Traced(s.RESTConfig, trace, root))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- client.RESTClient().Get().AbsPath("/apis/slow.example.org/v1/snails").Do(ctx).Error() }()
	soon, stop := context.WithTimeout(t.Context(), 20*time.Second) // the API server itself would wait for a minute
	defer stop()
	select {
	case <-asked:
	case err := <-ended:
		t.Fatalf("the list does not reach the server: %v", err)
	case <-soon.Done():
		t.Fatal("the list does not reach the server")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the list ends with %v", err)
	}
	select {
	case <-gone:
	case <-soon.Done():
		t.Fatal("the API server does not give up a list whose client has gone")
	}
	wait(t, spans, "of the list that was given up", func(s Span) bool { return s.Trace == trace && s.Parent == root && s.Service == "apiserver" })
}

// events records an Event twenty times, which is one object.
func events(t *testing.T, s cluster.Space) {
	about, err := s.Client.CoreV1().ServiceAccounts(s.Namespace).Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rain(s.Client, &core.ObjectReference{APIVersion: "v1", Kind: "ServiceAccount", Namespace: s.Namespace, Name: about.Name, UID: about.UID}, s.Namespace, 20))
	s.Play(t, "Events")
}
