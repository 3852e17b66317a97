package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/coracle-dev/coracle/pkg/diagnose/check"
	"github.com/coracle-dev/coracle/test/hosts"
)

// madeCopy is a backup as `coracle etcd snapshot list` describes it.
type madeCopy struct {
	Name, Node, Location, Error, BucketError string
	Tried                                    time.Time
}

func (c madeCopy) inBucket() bool { return strings.HasPrefix(c.Location, "s3://") }

// listCopies returns what a host's list shows, with the error if not all can be read.
func listCopies(t *testing.T, h *hosts.Host, flags ...string) (list []madeCopy, err error) {
	t.Helper()
	out, err := h.TryCoracle(append([]string{"etcd", "snapshot", "list", "-o", "json"}, flags...)...)
	if wrong := json.Unmarshal([]byte(out), &list); wrong != nil {
		t.Fatalf("%s lists %q, %v: %v", h.Name, out, err, wrong)
	}
	return list, err
}

// places are the names of backups with their locations.
func places(list []madeCopy) map[string]string {
	found := map[string]string{}
	for _, c := range list {
		if c.inBucket() {
			found["s3-"+c.Name] = c.Location
		} else {
			found["local-"+c.Name] = "file://" + c.Location
		}
	}
	return found
}

// toldCopies are those in the ConfigMap that a node has made.
func toldCopies(t *testing.T, h *hosts.Host, node string) map[string]string {
	t.Helper()
	var told struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(h.Kubectl("-n", "kube-system", "get", "configmap", "coracle-etcd-snapshots", "-o", "json")), &told); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for key, text := range told.Data {
		var c madeCopy
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatalf("%s: %v in %s", key, err, text)
		}
		if c.Node == node {
			found[key] = c.Location
		}
	}
	return found
}

// bucketKeeps wants that a backup whose file is gone is still in the list and in the ConfigMap, as it is in the bucket, and that both say the same.
func bucketKeeps(t *testing.T, h *hosts.Host, flags ...string) {
	t.Helper()
	list, err := listCopies(t, h, flags...)
	if err != nil || len(list) == 0 || list[0].inBucket() {
		t.Fatalf("%+v, %v", list, err)
	}
	gone := list[0]
	if err := os.Remove(h.Path(gone.Location)); err != nil {
		t.Fatal(err)
	}
	h.Coracle(append([]string{"etcd", "snapshot", "prune"}, flags...)...) // which finds no surplus, and tells
	if list, err = listCopies(t, h, flags...); err != nil {
		t.Fatal(err)
	}
	has, told := places(list), toldCopies(t, h, h.Name)
	if !maps.Equal(has, told) {
		t.Errorf("there are %v, and the ConfigMap has %v", has, told)
	}
	if where := has["s3-"+gone.Name]; !strings.HasPrefix(where, "s3://copies/edge/") || !strings.HasSuffix(where, "/"+h.Name+"/"+gone.Name) || has["local-"+gone.Name] != "" {
		t.Errorf("without the file of %s there are %v", gone.Name, has)
	}
}

// failedCopies makes a server's scheduled backups fail, first because the bucket is gone and then because trying them fails. All that tells of backups
// says so, nothing that is good is removed, and the next good one clears it.
func failedCopies(t *testing.T, c *hosts.Cluster, h *hosts.Host, s bucket) {
	t.Helper()
	s.Stop()
	wantFailed(t, h, "connection refused")
	list, err := listCopies(t, h)
	if err == nil || !strings.Contains(err.Error(), "connection refused") || len(list) < 2 || list[len(list)-1].BucketError == "" && list[len(list)-2].BucketError == "" {
		t.Errorf("without the bucket there are %+v, %v", list, err)
	}
	hosts.Eventually(t, time.Minute, func() error {
		const said = "the bucket cannot be read, so the ConfigMap coracle-etcd-snapshots keeps what it has of it"
		if !strings.Contains(c.Running(h).Log(), said) {
			return fmt.Errorf("the log does not say that %s", said)
		}
		return nil
	})
	if told := fmt.Sprint(toldCopies(t, h, h.Name)); !strings.Contains(told, "s3://copies/scheduled/") || !strings.Contains(told, "file:///mnt/copies/") {
		t.Errorf("without the bucket the ConfigMap has %s", told)
	}

	mend := spoilTrials(t, h)
	s.Serve(false)
	const why = "trying it failed"
	wantFailed(t, h, why)
	good := func(list []madeCopy) map[string]string {
		tried := map[string]string{}
		for name, place := range places(list) {
			tried[name] = place
		}
		for _, c := range list {
			if c.Tried.IsZero() {
				delete(tried, "local-"+c.Name)
			}
		}
		return tried
	}
	var before map[string]string
	hosts.Eventually(t, time.Minute, func() error {
		list, err := listCopies(t, h)
		failed := 0
		for _, c := range list {
			if c.Error != "" {
				failed++
			}
		}
		if failed == 0 || err != nil {
			return fmt.Errorf("none has failed, %v", err)
		}
		if before == nil {
			before = good(list)
		}
		if now := good(list); !maps.Equal(before, now) {
			t.Errorf("there were %v, and after another backup failed %v", before, now)
		}
		if failed < 2 {
			return fmt.Errorf("of %+v one has failed", list)
		}
		return nil
	})
	if len(before) < 3 {
		t.Errorf("the good ones are %v", before)
	}
	if text := h.Coracle("etcd", "snapshot", "list"); !strings.Contains(text, "FAILED") {
		t.Errorf("the list is\n%s", text)
	}
	mend()
	hosts.Eventually(t, time.Minute, func() error {
		list, err := listCopies(t, h)
		for _, c := range list {
			if c.Error != "" {
				return fmt.Errorf("%+v is still there", c)
			}
		}
		return err
	})
	wantGood(t, h)
}

// wantFailed wants that all that tells of a server's last backup says that it failed, and why.
func wantFailed(t *testing.T, h *hosts.Host, why string) {
	t.Helper()
	hosts.Eventually(t, time.Minute, func() error {
		if status := h.Coracle("status"); !strings.Contains(status, "Backup:       FAILED: ") || !strings.Contains(status, why) {
			return fmt.Errorf("status does not say that a backup failed with %q:\n%s", why, status)
		}
		if metrics := kubeletMetrics(h); !strings.Contains(metrics, "\ncoracle_etcd_snapshot_last_failed 1\n") {
			return fmt.Errorf("the kubelet's metrics do not tell that a backup failed with %q", why)
		}
		if events := h.Kubectl("get", "events", "--field-selector=reason=EtcdSnapshotFailed,involvedObject.name="+h.Name); !strings.Contains(events, why) {
			return fmt.Errorf("no Event says that a backup failed with %q:\n%s", why, events)
		}
		return nil
	})
	findsSoon(t, h, check.Fail, "backups", why, "coracle etcd snapshot save")
}

// wantGood wants that all that tells of it says that it is good.
func wantGood(t *testing.T, h *hosts.Host) {
	t.Helper()
	hosts.Eventually(t, time.Minute, func() error {
		if status := h.Coracle("status"); !strings.Contains(status, "Backup:       /mnt/copies/etcd-snapshot-"+h.Name) || !strings.Contains(status, ", and in s3://copies/scheduled") {
			return fmt.Errorf("status does not tell of a good backup:\n%s", status)
		}
		if metrics := kubeletMetrics(h); !strings.Contains(metrics, "\ncoracle_etcd_snapshot_last_failed 0\n") || strings.Contains(metrics, "\ncoracle_etcd_snapshot_last_size_bytes 0\n") {
			return fmt.Errorf("the kubelet's metrics do not tell of a good backup")
		}
		return nil
	})
	findsSoon(t, h, check.OK, "backups", "etcd-snapshot-"+h.Name)
}

func kubeletMetrics(h *hosts.Host) string {
	return h.Kubectl("get", "--raw", "/api/v1/nodes/"+h.Name+"/proxy/metrics")
}

// spoilTrials puts a file where the etcd of every trial would be, until mend is called.
func spoilTrials(t *testing.T, h *hosts.Host) (mend func()) {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(h.Data("server", "snapshots"))
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.Events {
			if e.Has(fsnotify.Create) && strings.HasPrefix(filepath.Base(e.Name), ".snapshot-") {
				_ = os.WriteFile(filepath.Join(e.Name, "db.etcd"), nil, 0o600)
			}
		}
	}()
	return func() {
		w.Close()
		<-done
	}
}
