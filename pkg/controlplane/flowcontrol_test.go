package controlplane

import (
	"context"
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-dev/coracle/pkg/core/config"
)

// flowSchemas checks in which FlowSchema the API server puts the requests of coracle's own identities, and those of others.
func flowSchemas(t *testing.T, admin *kubernetes.Clientset, cfg config.Config) {
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/coracle-control-plane"
	const node = "system:coracle:node:n1"
	for _, c := range []struct{ kubeconfig, user, group, path, want string }{
		{"coracle.kubeconfig", "", "", "/api/v1/nodes", "system-coracle"},
		{"coracle.kubeconfig", "", "", lease, "system-coracle-leader-election"},
		{"controller-manager.kubeconfig", "", "", "/api/v1/pods", "kube-controller-manager"},
		{"scheduler.kubeconfig", "", "", "/api/v1/pods", "kube-scheduler"},
		{"admin.kubeconfig", node, "system:coracle:nodes", "/api/v1/nodes", "system-coracle-nodes"},
		{"admin.kubeconfig", node, "system:coracle:nodes", lease, "system-coracle-nodes"},
		{"admin.kubeconfig", "system:node:n1", "system:nodes", "/api/v1/pods", "system-nodes"},
		{"admin.kubeconfig", "tenant", "", "/api/v1/nodes", "global-default"},
	} {
		as, err := clientcmd.BuildConfigFromFlags("", cfg.Dirs.ServerConfig(c.kubeconfig))
		if err != nil {
			t.Fatal(err)
		}
		if c.user != "" {
			as.Impersonate = rest.ImpersonationConfig{UserName: c.user, Groups: []string{"system:authenticated"}}
		}
		if c.group != "" {
			as.Impersonate.Groups = append(as.Impersonate.Groups, c.group)
		}
		client, err := rest.HTTPClientFor(as)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		defer func() {
			if t.Failed() {
				t.Logf("%s %s %s was in %s", c.kubeconfig, c.user, c.path, got)
			}
		}()
		await(t, "FlowSchema "+c.want+" for "+c.kubeconfig+" "+c.user+" "+c.path, func(ctx context.Context) bool {
			got = schemaOf(ctx, t, admin, client, as.Host+c.path)
			return got == c.want
		})
	}
}

// schemaOf is the name of the FlowSchema of a GET request.
func schemaOf(ctx context.Context, t *testing.T, admin *kubernetes.Clientset, client *http.Client, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	all, err := admin.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		if string(s.UID) == answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) {
			return s.Name
		}
	}
	return "none"
}
