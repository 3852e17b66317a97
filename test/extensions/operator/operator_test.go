package operator

import (
	"context"
	"encoding/base64"
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// TestOperator upgrades a custom resource and its operator while there are objects.
func TestOperator(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	c := cluster.Start(t, "operator", cluster.Options{Images: []string{"busybox"}})
	c.Run(t, "upgrade", func(t *testing.T, s cluster.Space) {
		s.Kubectl(t, "apply", "-f", "crd-v1alpha1.yaml")
		s.Kubectl(t, "wait", "--for=condition=Established", "crd/websites.web.example.org")
		stop := start(t, s, func() site { return &OldWebsite{} }, nil)
		s.Play(t, "The first version")
		before := s.Kubectl(t, "get", "pods", "-l", "website=shop", "-o", "jsonpath={.items[*].metadata.uid}")
		stop()

		e := c.Expose(t)
		start(t, s, func() site { return &Website{} }, webhook.NewServer(webhook.Options{Host: e.Host, Port: e.Port, CertDir: e.CertDir}))
		s.Play(t, "The second version", "SERVICE="+e.Name, "CA_BUNDLE="+base64.StdEncoding.EncodeToString(e.CABundle))
		if after := s.Kubectl(t, "get", "pods", "-l", "website=shop", "-o", "jsonpath={.items[*].metadata.uid}"); after != before {
			t.Errorf("the upgrade replaces pod %s by %s", before, after)
		}
		s.Play(t, "What the schema does")
		s.Play(t, "Without the old version")
	})
}

// start runs an operator until the end of the test, or until stop is called, which waits for its end.
func start(t *testing.T, s cluster.Space, empty func() site, hooks webhook.Server) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- operate(ctx, s.RESTConfig, s.Namespace, empty, hooks) }()
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}
