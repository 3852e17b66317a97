package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestStartOnFullDisk fills the disk of a stopped server, leaving less than a first start needs. It starts, reports the
// problem, and Kubernetes frees space: here by deleting a volume.
func TestStartOnFullDisk(t *testing.T) {
	slots.Take(t)
	h := newFreshHost(t, "small")
	h.LimitDisk(1500)
	h.CopyImages()
	s := h.Start()
	waitReady(t, h)
	h.Apply(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: big}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: coracle.test/busybox:1
    command: [sh, -c, 'dd if=/dev/zero of=/data/file bs=1M count=300; touch /data/done; sleep 36000']
    readinessProbe: {exec: {command: [test, -e, /data/done]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: big}}]
`)
	h.Kubectl("wait", "--for=condition=Ready", "pod/writer", "--timeout=3m")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	h.FillDisk()
	h.LeaveOnDisk(100 << 20) // etcd writes a whole log segment of 64 MB when it starts

	s = h.Start()
	waitReady(t, h)
	if !strings.Contains(s.Log(), "MiB of space left and needs 128 MiB: make room") {
		t.Error("the server does not say that its disk is full")
	}
	h.Kubectl("delete", "--now", "pod/writer", "pvc/big")
	hosts.Eventually(t, time.Minute, func() error {
		return contains("free space", h.Run("sh", "-c", "[ $(df --output=avail -m /var/lib/coracle | tail -n1) -gt 250 ] && echo enough || df -m /var/lib/coracle"), "enough")
	})
}
