package controlplane

import (
	"context"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/pkg/cluster/pki"
	"github.com/coracle-dev/coracle/pkg/core/config"
	"github.com/coracle-dev/coracle/pkg/core/kube"
	"github.com/coracle-dev/coracle/pkg/core/lifecycle"
	"github.com/coracle-dev/coracle/pkg/core/paths"
	"github.com/coracle-dev/coracle/pkg/core/state"
	"github.com/coracle-dev/coracle/test/freeport"
)

func settings(t *testing.T) config.Config {
	t.Helper()
	root, err := os.MkdirTemp("", "cp") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	in := func(name string) string { return filepath.Join(root, name) }
	address := netip.MustParseAddr("127.0.0.1")
	cfg := config.Config{
		Role: config.Server, CertificateLife: 24 * time.Hour,
		Dirs: paths.Dirs{Data: in("data"), Run: in("run"), Config: in("etc"), Kubelet: in("kubelet")},
		Network: config.Network{
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")},
			DNS:          []netip.Addr{netip.MustParseAddr("10.43.0.10")},
			Domain:       "cluster.local", Backend: config.VXLAN, NodePorts: "30000-32767",
		},
		API: config.API{Bind: address, Advertise: address, Port: freeport.Port(t),
			KubeconfigPath: in("kubeconfig.yaml"), KubeconfigMode: 0o600, Audit: true},
		Node: config.Node{Name: "n1", IPs: []netip.Addr{address}},
	}
	for _, dir := range []string{cfg.Dirs.Run, cfg.Dirs.Data, filepath.Dir(cfg.Dirs.State("x")), filepath.Dir(cfg.Dirs.EtcdSocket())} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pki.EnsureServer(cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestControlPlane runs the real thing, once: Kubernetes keeps too much in its process for a second time.
func TestControlPlane(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a whole control plane")
	}
	logrus.SetOutput(io.Discard)
	kube.SetupProcess(kube.GCControlPlane)
	cfg := settings(t)
	recordWrites(t, &cfg)
	units := &history{}
	group := lifecycle.Group{OnChange: units.add}
	leader, err := add(&group, cfg, state.NewRecorder(cfg.Dirs, state.ControlPlane, "test"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	began := time.Now()
	ready := group.Ready()
	go func() { ended <- group.Run(ctx) }()
	select {
	case <-ready:
		t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(5 * time.Minute):
		t.Fatal("not ready: " + lifecycle.Pending(group.Status()))
	}

	rest, err := clientcmd.BuildConfigFromFlags("", cfg.API.KubeconfigPath)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]func(*testing.T, *kubernetes.Clientset){
		"default policy": defaultPolicy, "OpenAPI": openAPI, "pod CIDR": podCIDR, "admission policy": admissionPolicy,
		"ready": readyz, "first pod": firstPod, "resource metrics": resourceMetricsAPI,
		"flow schemas": func(t *testing.T, c *kubernetes.Clientset) { flowSchemas(t, c, cfg) },
	} {
		t.Run(name, func(t *testing.T) { check(t, client) })
	}
	t.Run("lost leads", func(t *testing.T) { loseLeads(t, client, cfg, leader, units) })

	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("stopping: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it does not stop")
	}
}

func readyz(t *testing.T, c *kubernetes.Clientset) {
	got, err := c.RESTClient().Get().AbsPath("/readyz").Param("verbose", "").DoRaw(t.Context())
	for _, hook := range []string{"rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes", "priority-and-fairness-config-producer", "coracle/service-accounts"} {
		if !strings.Contains(string(got), "[+]poststarthook/"+hook+" ok") {
			t.Errorf("%s: %s %v", hook, got, err)
		}
	}
}

// firstPod: what a pod in the namespace default needs is there, and is what the controllers make in other namespaces.
func firstPod(t *testing.T, c *kubernetes.Clientset) {
	if _, err := c.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	const name = "kube-root-ca.crt"
	var ours, theirs *corev1.ConfigMap
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := lifecycle.Until(ctx, name, func(ctx context.Context) (err error) {
		if ours, err = c.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		theirs, err = c.CoreV1().ConfigMaps("kube-public").Get(ctx, name, metav1.GetOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(ours.Data, theirs.Data) || !maps.Equal(ours.Annotations, theirs.Annotations) {
		t.Errorf("it is %v %v, upstream's %v %v", ours.Annotations, ours.Data, theirs.Annotations, theirs.Data)
	}
}

func defaultPolicy(t *testing.T, c *kubernetes.Clientset) {
	for _, name := range []string{"cluster-admin", "admin", "edit", "view", "system:node", "system:controller:job-controller"} {
		if _, err := c.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.RbacV1().RoleBindings("kube-system").Get(t.Context(), "system::leader-locking-kube-scheduler", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"system-node-critical", "system-cluster-critical"} {
		if _, err := c.SchedulingV1().PriorityClasses().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"exempt", "catch-all", "system-nodes"} {
		if _, err := c.FlowcontrolV1().FlowSchemas().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}

func openAPI(t *testing.T, c *kubernetes.Clientset) {
	for path, want := range map[string]string{
		"/openapi/v2":                             "io.k8s.api.apps.v1.Deployment",
		"/openapi/v3":                             "apis/apps/v1",
		"/openapi/v3/apis/apps/v1":                "io.k8s.api.apps.v1.Deployment",
		"/openapi/v3/api/v1":                      "io.k8s.api.core.v1.Pod",
		"/openapi/v3/apis/metrics.k8s.io/v1beta1": `"group":"metrics.k8s.io","kind":"NodeMetrics"`,
	} {
		got, err := c.RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: no %s in %d bytes: %v", path, want, len(got), err)
		}
	}
}

// resourceMetricsAPI asks for what metrics-server serves, with the APIService and after somebody removed it.
func resourceMetricsAPI(t *testing.T, c *kubernetes.Clientset) {
	const group, object = "/apis/metrics.k8s.io/v1beta1", "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"
	get := func(path, accept, want string) {
		t.Helper()
		got, err := c.RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(t.Context())
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: no %s in %.500s: %v", path, want, got, err)
		}
	}
	get(object, "application/json", `"reason":"Local"`)
	get("/apis", "application/json", `"groupVersion":"metrics.k8s.io/v1beta1"`)
	for range 2 {
		get("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", `"metrics.k8s.io"`)
		get(group, "application/json", `"kind":"PodMetrics"`)
		get(group+"/nodes", "application/json", `"kind":"NodeMetricsList"`)
		get(group+"/namespaces/default/pods", "application/json", `"kind":"PodMetricsList"`)
		if err := c.RESTClient().Delete().AbsPath(object).Do(t.Context()).Error(); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

func podCIDR(t *testing.T, c *kubernetes.Clientset) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "a pod CIDR", func(ctx context.Context) bool {
		node, err := c.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		return err == nil && node.Spec.PodCIDR == "10.42.0.0/24"
	})
}

func admissionPolicy(t *testing.T, c *kubernetes.Clientset) {
	policies := c.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	_, err := policies.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "wrong"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "object.spec.nothing == 1"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "a warning about the policy's types", func(ctx context.Context) bool {
		p, err := policies.Get(ctx, "wrong", metav1.GetOptions{})
		return err == nil && p.Status.TypeChecking != nil && len(p.Status.TypeChecking.ExpressionWarnings) == 1
	})
}

func await(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(t.Context()); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("there is never " + what)
		}
	}
}
