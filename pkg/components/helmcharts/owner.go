package helmcharts

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// another finds the HelmChart of the same name in another namespace that keeps this release already.
func (c *controller) another(ch *chart, history []revision) (name cache.ObjectName, ok bool) {
	name = cache.NewObjectName(lastOf(history).from, ch.Name)
	if name.Namespace == "" || name.Namespace == ch.Namespace {
		return name, false
	}
	stored, ok, _ := c.charts.GetByKey(name.String())
	u, isObject := stored.(*unstructured.Unstructured)
	return name, ok && isObject && outline(u).namespace() == ch.namespace()
}
