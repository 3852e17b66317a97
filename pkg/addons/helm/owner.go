package helm

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// otherOwner finds the HelmChart of the same name in another namespace that this release was made for last; nil if there is
// none. Unless it is ours, the release may be taken over; but what was not taken over is not ours to remove.
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

// requeueNamesakes has the charts of the same name in other namespaces looked at: one may wait for the release of the chart
// that is gone, or not ours any more.
func (c *controller) requeueNamesakes(gone cache.ObjectName) {
	for _, key := range c.charts.ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil && name.Name == gone.Name && name != gone {
			c.queue.Add(name)
		}
	}
}
