package metricsserver

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

// TestYoungContainer measures a container that idles for 20 seconds, and then uses one CPU, beside one that always does.
func TestYoungContainer(t *testing.T) {
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	used := func(name string, second int) uint64 {
		if name == "late" {
			second = max(0, second-20)
		}
		return uint64(second) * 1e9
	}
	for name, c := range map[string]struct {
		at   []int            // seconds at which it is measured
		want map[string]int64 // by container: mCPU in the end; nil if there is no figure
	}{
		"too young":             {[]int{5}, nil},
		"measured once":         {[]int{40}, map[string]int64{"always": 1000, "late": 500}},
		"once, and too old":     {[]int{300}, nil},
		"measured twice":        {[]int{40, 50}, map[string]int64{"always": 1000, "late": 1000}},
		"twice in a second":     {[]int{40, 40}, map[string]int64{"always": 1000, "late": 500}},
		"first when too young":  {[]int{5, 10}, map[string]int64{"always": 1000, "late": 0}},
		"three times":           {[]int{12, 22, 32}, map[string]int64{"always": 1000, "late": 1000}},
		"after a minute's rest": {[]int{20, 80, 85}, map[string]int64{"always": 1000, "late": 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			u := &usage{Storage: storage.NewStorage(0)}
			pod := types.NamespacedName{Namespace: "a", Name: "b"}
			for _, second := range c.at {
				point := storage.PodMetricsPoint{Containers: map[string]storage.MetricsPoint{}}
				for _, name := range []string{"always", "late"} {
					point.Containers[name] = storage.MetricsPoint{
						StartTime: start, Timestamp: start.Add(time.Duration(second) * time.Second), CumulativeCPUUsed: used(name, second),
					}
				}
				u.store(&storage.MetricsBatch{Pods: map[types.NamespacedName]storage.PodMetricsPoint{pod: point}})
			}
			found, err := u.Storage.GetPodMetrics(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}})
			if err != nil || len(found) != min(1, len(c.want)) {
				t.Fatalf("the figures are %v, %v", found, err)
			}
			for _, pod := range found {
				for _, used := range pod.Containers {
					if got := used.Usage.Cpu().MilliValue(); got != c.want[used.Name] {
						t.Errorf("%s uses %d mCPU, want %d", used.Name, got, c.want[used.Name])
					}
				}
			}
		})
	}
}

// TestRestartedContainer: what was before a restart does not count.
func TestRestartedContainer(t *testing.T) {
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	u := &usage{Storage: storage.NewStorage(0)}
	pod := types.NamespacedName{Namespace: "a", Name: "b"}
	for _, p := range []storage.MetricsPoint{
		{StartTime: start, Timestamp: start.Add(time.Minute), CumulativeCPUUsed: 60e9},
		{StartTime: start.Add(2 * time.Minute), Timestamp: start.Add(3 * time.Minute), CumulativeCPUUsed: 30e9},
	} {
		u.store(&storage.MetricsBatch{Pods: map[types.NamespacedName]storage.PodMetricsPoint{pod: {Containers: map[string]storage.MetricsPoint{"c": p}}}})
	}
	found, err := u.Storage.GetPodMetrics(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}})
	if err != nil || len(found) != 1 || found[0].Containers[0].Usage.Cpu().MilliValue() != 500 {
		t.Errorf("the figures are %v, %v", found, err)
	}
}
