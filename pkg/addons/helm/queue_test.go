package helm

import (
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestTenantsWait: charts of tenants, whose hooks may take for ever, leave workers for those of administrators.
func TestTenantsWait(t *testing.T) {
	c := newController(HelmCharts{Namespaces: []string{"kube-system"}}, nil, nil)
	enter := func(namespace string) func() {
		leave, _ := c.enter(cache.NewObjectName(namespace, "web"))
		return leave
	}
	var first func()
	admitted := 0
	for range workers {
		if leave := enter("shop"); leave != nil {
			admitted, first = admitted+1, leave
		}
	}
	if admitted != workers/2 || enter("other") != nil || enter("kube-system") == nil {
		t.Errorf("%d of a tenant's charts have workers", admitted)
	}
	if first(); enter("other") == nil {
		t.Error("no other one follows")
	}
}
