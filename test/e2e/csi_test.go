package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coracle-dev/coracle/test/hosts"
)

// buildCSI builds the driver, upstream's sidecars and csi-sanity into build/csi, where programs that are up to date are kept.
func buildCSI(t *testing.T) (dir string) {
	t.Helper()
	dir, err := filepath.Abs("../../build/csi")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("../csi/build", dir).CombinedOutput(); err != nil {
		t.Fatalf("building the CSI driver: %v: %s", err, out)
	}
	return dir
}

// testCSI deploys a third-party driver with upstream's sidecars, and uses its volumes.
func testCSI(t *testing.T, h *hosts.Host, s *hosts.Server, programs string) {
	if out, err := exec.Command("cp", "-R", programs, h.Data("csi")).CombinedOutput(); err != nil {
		t.Fatalf("bringing the driver onto the host: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, container := range []string{"driver", "attacher", "provisioner", "resizer"} {
				out, _ := h.TryCoracle("kubectl", "logs", "-n", "kube-system", "daemonset/csi", "-c", container, "--tail=40")
				t.Logf("the last of %s:\n%s", container, out)
			}
		}
	})
	h.Apply(manifest(t, "csi.yaml"))
	h.Kubectl("rollout", "status", "-n", "kube-system", "daemonset/csi", "--timeout=3m")
	expect(t, "csi.coracle.test 20", func() (string, error) {
		return h.TryCoracle("kubectl", "get", "csinode", "solo", "-o", `jsonpath={range .spec.drivers[*]}{.name} {.allocatable.count}{end}`)
	})
	h.Apply(podWith("files", "volumeMounts: [{name: data, mountPath: /data}]", "persistentVolumeClaim: {claimName: csi-files}"))
	h.Apply(podWith("raw", "volumeDevices: [{name: data, devicePath: /dev/data}]", "persistentVolumeClaim: {claimName: csi-device}"))
	h.Apply(podWith("inline", "volumeMounts: [{name: data, mountPath: /data}]", "csi: {driver: csi.coracle.test}"))
	h.Apply(podWith("generic", "volumeMounts: [{name: data, mountPath: /data}]", `ephemeral: {volumeClaimTemplate: {spec: {storageClassName: csi, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Mi}}}}}`))
	h.Kubectl("wait", "--for=condition=Ready", "pod/files", "pod/raw", "pod/inline", "pod/generic", "--timeout=3m")

	t.Run("files", func(t *testing.T) { testCSIFiles(t, h) })
	t.Run("device", func(t *testing.T) {
		prints(t, h, "raw", "test -b /dev/data && blockdev --getsize64 /dev/data", fmt.Sprint(8<<20))
		prints(t, h, "raw", "echo mark | dd of=/dev/data bs=512 conv=sync,fsync 2>/dev/null; head -n 1 /dev/data", "mark")
	})
	t.Run("ephemeral", func(t *testing.T) {
		prints(t, h, "inline", "df -m /data | awk 'END {print $1, $2}'", "csi 1")
		prints(t, h, "generic", "df -m /data | awk 'END {print $1, $2}'", "csi 2")
	})
	t.Run("expansion", func(t *testing.T) { testCSIExpansion(t, h) })
	t.Run("restart of the kubelet", func(t *testing.T) { testCSIRestart(t, h, s) })
	t.Run("deletion", func(t *testing.T) { testCSIDeletion(t, h) })
	t.Run("sanity", func(t *testing.T) { testCSISanity(t, h) })
}

func testCSIFiles(t *testing.T, h *hosts.Host) {
	prints(t, h, "files", "df -m /data | awk 'END {print $1, $2}'", "csi 16")
	prints(t, h, "files", "stat -c %g /data; echo kept > /data/file && stat -c %g /data/file", "2000\n2000")
	pv := h.Kubectl("get", "pvc", "csi-files", "-o", "jsonpath={.spec.volumeName}")
	attached := h.Kubectl("get", "volumeattachments", "-o", `jsonpath={range .items[*]}{.spec.source.persistentVolumeName} {.spec.nodeName} {.status.attached}{"\n"}{end}`)
	if !strings.Contains(attached, pv+" solo true") {
		t.Errorf("%s is not attached: %s", pv, attached)
	}
	h.Kubectl("delete", "pod", "files", "--wait")
	h.Apply(podWith("files", "volumeMounts: [{name: data, mountPath: /data, readOnly: true}]", "persistentVolumeClaim: {claimName: csi-files}"))
	h.Kubectl("wait", "--for=condition=Ready", "pod/files", "--timeout=3m")
	prints(t, h, "files", "cat /data/file; touch /data/more 2>/dev/null || echo refused", "kept\nrefused")
}

func testCSIExpansion(t *testing.T, h *hosts.Host) {
	for _, claim := range []string{"csi-files", "csi-device"} {
		h.Kubectl("patch", "pvc", claim, "-p", `{"spec":{"resources":{"requests":{"storage":"24Mi"}}}}`)
	}
	expect(t, "csi 24", func() (string, error) {
		return h.TryCoracle("kubectl", "exec", "files", "--", "sh", "-c", "df -m /data | awk 'END {print $1, $2}'")
	})
	expect(t, fmt.Sprint(24<<20), func() (string, error) {
		// An annotation makes the kubelet sync the pod, and so the device, now instead of within a minute.
		h.Kubectl("annotate", "--overwrite", "pod", "files", "raw", fmt.Sprintf("now=%d", time.Now().UnixNano()))
		return h.TryCoracle("kubectl", "exec", "raw", "--", "blockdev", "--getsize64", "/dev/data")
	})
	expect(t, "24Mi 24Mi", func() (string, error) {
		return h.TryCoracle("kubectl", "get", "pvc", "csi-files", "csi-device", "-o", "jsonpath={.items[*].status.capacity.storage}")
	})
}

// testCSIRestart kills the kubelet: pods keep their volumes, and the kubelet finds the driver's socket again.
func testCSIRestart(t *testing.T, h *hosts.Host, s *hosts.Server) {
	child, err := s.ChildPID("node")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	hosts.Eventually(t, 2*time.Minute, func() error {
		out, err := h.TryCoracle("kubectl", "exec", "files", "--", "cat", "/data/file")
		if err != nil {
			return err
		}
		return contains("the volume", out, "kept")
	})
	h.Apply(podWith("after", "volumeMounts: [{name: data, mountPath: /data}]", "csi: {driver: csi.coracle.test}"))
	h.Kubectl("wait", "--for=condition=Ready", "pod/after", "--timeout=3m")
}

// testCSIDeletion deletes all pods and claims and checks that nothing is left.
func testCSIDeletion(t *testing.T, h *hosts.Host) {
	h.Kubectl("delete", "pod", "files", "raw", "inline", "generic", "after", "--wait")
	h.Kubectl("delete", "pvc", "csi-files", "csi-device", "--wait")
	hosts.Eventually(t, 3*time.Minute, func() error {
		if left := h.Kubectl("get", "volumeattachments", "-o", "name"); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		if left := h.Kubectl("get", "pv", "-o", `jsonpath={.items[?(@.spec.csi)].metadata.name}`); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		left, err := h.Try("sh", "-c", "grep -c '^csi ' /proc/mounts; ls -A /var/lib/kubelet/plugins/csi.coracle.test/volumes")
		if err != nil || strings.TrimSpace(left) != "0" {
			return fmt.Errorf("left on the host: %s %v", left, err)
		}
		return nil
	})
	// Another test may have such devices on the machine at the same time. The files of those of this host are gone.
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range loops {
		data, _ := os.ReadFile(name)
		if file, gone := strings.CutSuffix(strings.TrimSpace(string(data)), " (deleted)"); gone && strings.Contains(file, "/csi.coracle.test/volumes/") {
			t.Errorf("a loop device still has %s", file)
		}
	}
}

// testCSISanity runs csi-test's suite against the driver itself, beside the deployed one.
func testCSISanity(t *testing.T, h *hosts.Host) {
	out, err := h.Try("sh", "-c", `
		/var/lib/coracle/csi/csi --name=sanity.coracle.test --dir=/var/lib/kubelet/plugins/sanity >/tmp/sanity.log 2>&1 &
		driver=$!
		for _ in $(seq 100); do [ -S /var/lib/kubelet/plugins/sanity/csi.sock ] && break; sleep 0.1; done
		/var/lib/coracle/csi/csi-sanity --csi.endpoint=/var/lib/kubelet/plugins/sanity/csi.sock \
			--csi.mountdir=/tmp/sanity-mount --csi.stagingdir=/tmp/sanity-stage --ginkgo.no-color
		code=$?
		kill $driver
		exit $code`)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "Ran ") || strings.Contains(line, " Passed") {
			t.Logf("csi-sanity: %s", line)
		}
	}
	if err != nil {
		t.Errorf("csi-sanity: %v", err)
	}
}
