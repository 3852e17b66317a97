package helm

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// otherOwner returns the HelmChart in another namespace that the release was made for last; nil if there is none. If that
// one is unmanaged, ch may take the release over by an upgrade, but must not uninstall it before.
func (c *controller) otherOwner(ch *chart, history []revision) *chart {
	name := cache.NewObjectName(newestOf(history).from, ch.Name)
	if name.Namespace == "" || name.Namespace == ch.Namespace {
		return nil
	}
	stored, _, _ := c.charts.GetByKey(name.String())
	u, ok := stored.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	if other := partial(u); other.namespace() == ch.namespace() {
		return other
	}
	return nil
}

// requeueNamesakes queues the charts of the same name in other namespaces: one may wait for the release of a chart that is
// deleted or no longer managed.
func (c *controller) requeueNamesakes(gone cache.ObjectName) {
	for _, key := range c.charts.ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil && name.Name == gone.Name && name != gone {
			c.queue.Add(name)
		}
	}
}
