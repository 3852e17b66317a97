package coracletest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionreview "k8s.io/api/admission/v1"
	admission "k8s.io/api/admissionregistration/v1"
)

// kubectl runs kubectl with a cluster. The error of a failed call is what kubectl printed.
func kubectl(t TB, c *Cluster, args ...string) (string, error) {
	t.Helper()
	out, err := c.Command(t.(*testing.T).Context(), "kubectl", args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// mustKubectl fails the test if the call does.
func mustKubectl(t TB, c *Cluster, args ...string) string {
	t.Helper()
	out, err := kubectl(t, c, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return out
}

// TestCluster uses one cluster of two nodes in several subtests at the same time.
func TestCluster(t *testing.T) {
	t.Parallel()
	o := Options{Nodes: 2, Manifests: []string{"testdata/web.yaml"}, Rollout: true}
	if dir := os.Getenv("CORACLE_TEST_IMAGES"); dir != "" {
		o.Images = []string{filepath.Join(dir, "busybox.tar")}
	} else {
		t.Skip("CORACLE_TEST_IMAGES does not name the directory with busybox.tar, which scripts/test-images makes")
	}
	c := Start(t, o)
	if nodes := strings.Fields(mustKubectl(t, c, "get", "nodes", "-o", "name")); len(nodes) != 2 || len(c.Nodes) != 2 || c.Nodes[0].Role != "server" {
		t.Errorf("nodes %q, as Go values %+v", nodes, c.Nodes)
	}
	t.Run("group", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *Cluster){
			"pods": podServes, "namespaces": namespaces, "webhook": webhook, "own server": ownServer, "aggregated API": aggregatedAPI, "pod reaches the test": podReachesTest,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, c)
			})
		}
	})
}

// podServes reaches a pod of the manifests through its Service and the node's port.
func podServes(t *testing.T, c *Cluster) {
	port := mustKubectl(t, c, "get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
	if needsEngine() {
		t.Log("nodes of a cluster in a container are not reachable from here")
		return
	}
	for _, n := range c.Nodes {
		resp, err := http.Get("http://" + net.JoinHostPort(n.IP, port) + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", n.Name, resp.Status)
		}
	}
}

// failing is a test that has failed.
type failing struct {
	*testing.T
	cleanups []func()
}

func (f *failing) Failed() bool     { return true }
func (f *failing) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }

// namespaces: a namespace can run pods at once and goes with its test; after a failure it stays.
func namespaces(t *testing.T, c *Cluster) {
	other := &Cluster{RESTConfig: c.RESTConfig} // so that the failure below is not that of the whole cluster
	var gone string
	t.Run("Of One_Test", func(t *testing.T) {
		gone = other.Namespace(t)
		if !strings.HasPrefix(gone, "testcluster-group-namespaces-of-one-test-"[:20]) {
			t.Errorf("its name is %s", gone)
		}
		mustKubectl(t, c, "run", "idle", "--namespace", gone, "--image=coracle.test/busybox:1", "--", "true")
	})
	if phase := mustKubectl(t, c, "get", "namespace", gone, "--ignore-not-found", "-o", "jsonpath={.status.phase}"); phase == "Active" {
		t.Errorf("namespace %s stays after its test", gone)
	}
	f := &failing{T: t}
	kept := other.Namespace(f)
	for _, cleanup := range f.cleanups {
		cleanup()
	}
	if phase := mustKubectl(t, c, "get", "namespace", kept, "-o", "jsonpath={.status.phase}"); phase != "Active" || !other.failed.Load() {
		t.Errorf("after a failure namespace %s is %s, and the cluster notes %v", kept, phase, other.failed.Load())
	}
}

// review answers the reviews of a webhook: it refuses everything, and says so.
func review(w http.ResponseWriter, r *http.Request) {
	var got admissionreview.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	got.Response = &admissionreview.AdmissionResponse{UID: got.Request.UID}
	got.Response.Result = &statusMessage
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(got)
}

// refuse makes a webhook for the ConfigMaps of a namespace, and waits until it refuses one.
func refuse(t *testing.T, c *Cluster, e *Endpoint) {
	t.Helper()
	namespace := c.Namespace(t)
	none, equivalent := admission.SideEffectClassNone, admission.Equivalent
	hook := admission.ValidatingWebhook{
		Name: e.Name + ".example.org", ClientConfig: e.ClientConfig("/review"), SideEffects: &none, MatchPolicy: &equivalent, AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector: selector("kubernetes.io/metadata.name", namespace),
		Rules: []admission.RuleWithOperations{{Operations: []admission.OperationType{admission.Create},
			Rule: admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}},
	}
	path := "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	if err := c.call(t.Context(), http.MethodPost, path, object{"metadata": object{"name": e.Name}, "webhooks": []any{hook}}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second) // the API server learns of the webhook by a watch
	for i := 0; ; i++ {
		_, err := kubectl(t, c, "create", "configmap", fmt.Sprint("one-", i), "--namespace", namespace)
		if err != nil && strings.Contains(err.Error(), statusMessage.Message) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the webhook does not refuse a ConfigMap: %v", err)
		}
	}
}

// webhook serves a webhook from this process.
func webhook(t *testing.T, c *Cluster) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /review", review)
	refuse(t, c, c.Serve(t, mux))
}

// ownServer serves a webhook as controller-runtime does, with a server of its own that gets address and files.
func ownServer(t *testing.T, c *Cluster) {
	e := c.Expose(t)
	server := &http.Server{Addr: net.JoinHostPort(e.Host, fmt.Sprint(e.Port)), Handler: http.HandlerFunc(review)}
	ended := make(chan error, 1)
	go func() {
		ended <- server.ListenAndServeTLS(filepath.Join(e.CertDir, "tls.crt"), filepath.Join(e.CertDir, "tls.key"))
	}()
	refuse(t, c, e)
	server.Close()
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// aggregatedAPI serves an API group from this process.
func aggregatedAPI(t *testing.T, c *Cluster) {
	users := make(chan string, 100)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/flowers.example.org/v1/lilies", func(w http.ResponseWriter, r *http.Request) {
		users <- r.Header.Get("X-Remote-User") + " by " + r.TLS.PeerCertificates[0].Subject.CommonName
		fmt.Fprint(w, `{"kind": "LilyList", "items": []}`)
	})
	mux.HandleFunc("GET /apis/flowers.example.org/v1", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"kind": "APIResourceList", "groupVersion": "flowers.example.org/v1", "resources": []}`)
	})
	c.ServeAPI(t, c.Serve(t, mux), "flowers.example.org", "v1")
	if out := mustKubectl(t, c, "get", "--raw", "/apis/flowers.example.org/v1/lilies"); !strings.Contains(out, "LilyList") {
		t.Errorf("the cluster answers %s", out)
	}
	if user := <-users; !strings.HasPrefix(user, "kubernetes-admin by ") && !strings.Contains(user, "admin by ") {
		t.Errorf("the request is of %s", user)
	}
}

// podReachesTest: a pod reaches a server of this process by the Service's name.
func podReachesTest(t *testing.T, c *Cluster) {
	reached := make(chan string, 10)
	e := c.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Host + r.URL.Path }))
	namespace := c.Namespace(t)
	mustKubectl(t, c, "run", "client", "--namespace", namespace, "--image=coracle.test/busybox:1", "--restart=OnFailure", "--env=CA="+string(e.CABundle),
		"--env=SSL_CERT_FILE=/ca.crt", "--", "sh", "-c", `echo "$CA" >/ca.crt && probe get `+e.URL()+"/hello")
	select {
	case got := <-reached:
		if want := strings.TrimPrefix(e.URL(), "https://") + "/hello"; got != want {
			t.Errorf("the pod asks for %s, not %s", got, want)
		}
	case <-time.After(time.Minute):
		t.Errorf("no request of the pod: %s", mustKubectl(t, c, "describe", "pod", "client", "--namespace", namespace))
	}
}

// TestPrepared: two clusters that start from a prepared one have its objects, and do not see each other's.
func TestPrepared(t *testing.T) {
	t.Parallel()
	var base string
	p := Prepare(t, Options{}, func(c *Cluster) error {
		base = c.Name
		_, err := kubectl(t, c, "create", "configmap", "prepared")
		return err
	})
	t.Run("group", func(t *testing.T) {
		for _, name := range []string{"one", "two"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := Start(t, Options{From: p})
				mustKubectl(t, c, "get", "configmap", "prepared")
				mustKubectl(t, c, "create", "configmap", "mine")
			})
		}
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if what := left(base); what != nil {
		t.Errorf("left of the prepared cluster: %s", what)
	}
}

// TestEnvironment: the names of envtest make a cluster with custom resources.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	if _, err := (&Environment{CRDDirectoryPaths: []string{"testdata/none"}, ErrorIfCRDPathMissing: true}).Start(); err == nil || !strings.Contains(err.Error(), "testdata/none") {
		t.Errorf("without its directory: %v", err)
	}
	env := &Environment{CRDDirectoryPaths: []string{"testdata/crd", "testdata/none"}}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	c := env.Cluster
	if config != c.RESTConfig || !strings.Contains(string(env.KubeConfig), config.Host) {
		t.Errorf("the configuration for %s is not that of the cluster", config.Host)
	}
	if err := c.call(t.Context(), http.MethodPost, "/apis/example.org/v1/namespaces/default/widgets",
		object{"apiVersion": "example.org/v1", "kind": "Widget", "metadata": object{"name": "one"}}); err != nil {
		t.Error(err)
	}
	if err := env.Stop(); err != nil {
		t.Error(err)
	}
	if what := left(c.Name); what != nil {
		t.Errorf("left after Stop: %s", what)
	}
}
