package metricsserver

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

const (
	// minAverageAge is the age of a container below which its average since the start is meaningless.
	minAverageAge = 10 * time.Second
	// maxAverageAge is the age up to which that average is better than no figure.
	maxAverageAge = 2 * idleInterval
)

// firstMeasurements adds a measurement of zero at the start of containers that have been measured only once. So a container
// has a figure from its first measurement on, and from the second on a figure for the time in between. The storage has a
// rule for this too, but goes by the age alone: with a minute between measurements it would show the average since the start
// although a more recent figure is known.
type firstMeasurements struct{ last storage.MetricsBatch }

// before returns the batch to store before batch: the previous one with the added measurements of containers that are new in
// batch. It is nil if there are none.
func (b *firstMeasurements) before(batch *storage.MetricsBatch) *storage.MetricsBatch {
	last := b.last
	b.last = *batch
	var added *storage.MetricsBatch
	for pod, point := range batch.Pods {
		for name, now := range point.Containers {
			if age := now.Timestamp.Sub(now.StartTime); now.StartTime.IsZero() || age < minAverageAge || age > maxAverageAge {
				continue
			}
			if before, ok := last.Pods[pod].Containers[name]; ok && before.Timestamp.After(now.StartTime) {
				continue
			}
			if added == nil {
				added = &storage.MetricsBatch{Nodes: last.Nodes, Pods: maps.Clone(last.Pods)}
				if added.Pods == nil {
					added.Pods = map[types.NamespacedName]storage.PodMetricsPoint{}
				}
			}
			containers := maps.Clone(added.Pods[pod].Containers)
			if containers == nil {
				containers = map[string]storage.MetricsPoint{}
			}
			// The storage requires a measurement to be later than the start.
			containers[name] = storage.MetricsPoint{StartTime: now.StartTime, Timestamp: now.StartTime.Add(time.Nanosecond)}
			added.Pods[pod] = storage.PodMetricsPoint{Containers: containers}
		}
	}
	return added
}
