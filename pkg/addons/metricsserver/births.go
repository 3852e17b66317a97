package metricsserver

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

const (
	// infancy is the age under which a container's average since its start says nothing.
	infancy = 10 * time.Second
	// youth is the age up to which that average is better than no figure.
	youth = 2 * heartbeat
)

// births knows the first measurement of containers that have been measured once only: when they started, they had used
// nothing. So a container has a figure at the first measurement, and from the second on one of the time in between. The
// storage has a rule for this too, but by age alone, which after a minute between two measurements would be an average
// over that minute, when something recent is known.
type births struct{ last storage.MetricsBatch }

// before returns what to store before batch: the last one, and the births of containers that are new in batch. It is nil
// if there are none.
func (b *births) before(batch *storage.MetricsBatch) *storage.MetricsBatch {
	last := b.last
	b.last = *batch
	var born *storage.MetricsBatch
	for pod, point := range batch.Pods {
		for name, now := range point.Containers {
			if age := now.Timestamp.Sub(now.StartTime); now.StartTime.IsZero() || age < infancy || age > youth {
				continue
			}
			if before, ok := last.Pods[pod].Containers[name]; ok && before.Timestamp.After(now.StartTime) {
				continue
			}
			if born == nil {
				born = &storage.MetricsBatch{Nodes: last.Nodes, Pods: maps.Clone(last.Pods)}
				if born.Pods == nil {
					born.Pods = map[types.NamespacedName]storage.PodMetricsPoint{}
				}
			}
			containers := maps.Clone(born.Pods[pod].Containers)
			if containers == nil {
				containers = map[string]storage.MetricsPoint{}
			}
			// The storage wants a measurement to be later than the start.
			containers[name] = storage.MetricsPoint{StartTime: now.StartTime, Timestamp: now.StartTime.Add(time.Nanosecond)}
			born.Pods[pod] = storage.PodMetricsPoint{Containers: containers}
		}
	}
	return born
}
