package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/coracle-dev/coracle/pkg/machine/backup"
)

// snapshotMetrics tell of the last attempt to make a backup of the cluster, whose note is in file. They are 0 where there was none.
func snapshotMetrics(file string) []prometheus.Collector {
	read := func(name, help string, value func(backup.Attempt) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "coracle_etcd_snapshot_" + name, Help: help}, func() float64 {
			if last := backup.LastAttempt(file); last != nil {
				return value(*last)
			}
			return 0
		})
	}
	return []prometheus.Collector{
		read("last_attempt_timestamp_seconds", "When this server last tried to make a backup of the cluster.", func(a backup.Attempt) float64 { return float64(a.Time.Unix()) }),
		read("last_failed", "Whether that failed, or what was made could not be restored.", func(a backup.Attempt) float64 {
			if a.Error != "" {
				return 1
			}
			return 0
		}),
		read("last_size_bytes", "The size of that backup.", func(a backup.Attempt) float64 { return float64(a.Copy.Size) }),
	}
}
