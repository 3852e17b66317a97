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

// namesakes has the charts of the same name in other namespaces looked at: one may wait for the release of the chart
// that is gone.
func (c *controller) namesakes(gone cache.ObjectName) {
	for _, key := range c.charts.ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil && name.Name == gone.Name && name != gone {
			c.queue.Add(name)
		}
	}
}
