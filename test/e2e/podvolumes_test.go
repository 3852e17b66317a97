package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/hosts"
	"github.com/coracle-dev/coracle/test/slots"
)

// TestPodVolumes runs one cluster for the kinds of volumes of pods, and for a third-party CSI driver.
func TestPodVolumes(t *testing.T) {
	slots.Take(t)
	hosts.Bin(t)
	driver := buildCSI(t)
	h, s := newCluster(t)
	for _, dir := range []string{"always", "matching", "mismatching"} {
		h.Run("sh", "-c", "mkdir -p /srv/"+dir+"/deep && echo data > /srv/"+dir+"/deep/file && chmod 600 /srv/"+dir+"/deep/file")
	}
	h.Run("sh", "-c", "chgrp 2000 /srv/matching && chmod 2770 /srv/matching")
	h.Apply(manifest(t, "podvolumes.yaml", "${DEVICE}", loopDevice(t, h)))
	h.Kubectl("wait", "--for=condition=Ready", "pod/always", "pod/root-mismatch", "pod/device", "pod/passing", "--timeout=3m")

	t.Run("fsGroup", func(t *testing.T) { testFSGroup(t, h) })
	t.Run("block", func(t *testing.T) { testBlock(t, h) })
	t.Run("ephemeral", func(t *testing.T) { testEphemeralVolumes(t, h) })
	t.Run("projected", func(t *testing.T) { testProjected(t, h) })
	t.Run("immutable", func(t *testing.T) { testImmutable(t, h) })
	t.Run("CSI", func(t *testing.T) { testCSI(t, h.For(t), s, driver) })
}

// loopDevice makes a loop device of 4 MiB on the host until the test ends.
func loopDevice(t *testing.T, h *hosts.Host) string {
	t.Helper()
	file := h.Data("device.img")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 4<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("making a loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		h.Kill() // ends its users
		if out, err := exec.Command("losetup", "-d", device).CombinedOutput(); err != nil {
			t.Errorf("giving %s back: %v: %s", device, err, out)
		}
	})
	return device
}

// shell returns the output of a shell command in a pod.
func shell(h *hosts.Host, pod, line string) string {
	return strings.TrimSpace(h.Kubectl("exec", pod, "--", "sh", "-c", line))
}

// prints fails the test unless a shell command in a pod prints the text.
func prints(t *testing.T, h *hosts.Host, pod, line, want string) {
	t.Helper()
	if got := shell(h, pod, line); got != want {
		t.Errorf("%s: %s prints %q, want %q", pod, line, got, want)
	}
}

func testFSGroup(t *testing.T, h *hosts.Host) {
	prints(t, h, "always", "stat -c %g /data /data/deep/file | xargs", "2000 2000")
	prints(t, h, "always", "touch /data/mine && stat -c %u:%g /data/mine", "1000:2000")
	prints(t, h, "root-mismatch", "stat -c %g /mismatching /mismatching/deep/file | xargs", "2000 2000")
	// The kubelet checks only the volume's root directory, which is as it should be.
	prints(t, h, "root-mismatch", "stat -c %g /matching /matching/deep/file | xargs", "2000 0")
}

func testBlock(t *testing.T, h *hosts.Host) {
	prints(t, h, "device", "test -b /dev/data && blockdev --getsize64 /dev/data", fmt.Sprint(4<<20))
	shell(h, "device", "echo mark | dd of=/dev/data bs=512 seek=8 conv=sync,fsync 2>/dev/null")
	h.Kubectl("delete", "pod", "device", "--wait")
	spec := podWith("device-again", "volumeDevices: [{name: data, devicePath: /dev/other}]", "persistentVolumeClaim: {claimName: device}")
	h.Apply(spec)
	h.Kubectl("wait", "--for=condition=Ready", "pod/device-again", "--timeout=3m")
	prints(t, h, "device-again", "dd if=/dev/other bs=512 skip=8 count=1 2>/dev/null | head -n 1", "mark")
	h.Kubectl("delete", "pod", "device-again", "--wait")
}

// podWith is a pod that sleeps, with a volume and its use in the container.
func podWith(name, use, volume string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {fsGroup: 2000}
  containers: [{name: main, image: coracle.test/busybox:1, command: [sleep, '36000'], %s}]
  volumes: [{name: data, %s}]
`, name, use, volume)
}

func testEphemeralVolumes(t *testing.T, h *hosts.Host) {
	prints(t, h, "passing", "df -m /memory | awk 'END {print $1, $2}'", "tmpfs 4")
	if out, err := h.TryCoracle("kubectl", "exec", "passing", "--", "dd", "if=/dev/zero", "of=/memory/much", "bs=1M", "count=5"); err == nil {
		t.Errorf("more than the limit goes into an emptyDir in memory: %s", out)
	}
	shell(h, "passing", "rm /memory/much; echo here > /disk/file")
	uid := h.Kubectl("get", "pod", "passing", "-o", "jsonpath={.metadata.uid}")
	dir := "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~empty-dir/disk/file"
	if got := h.Run("cat", dir); got != "here\n" {
		t.Errorf("the emptyDir on the host holds %q", got)
	}
}

func testProjected(t *testing.T, h *hosts.Host) {
	prints(t, h, "passing", "cat /all/from/config; echo; cat /all/from/secret", "stone\ngranite")
	prints(t, h, "passing", "stat -L -c %a /all/from/config /all/from/secret | xargs", "440 400")
	prints(t, h, "passing", "cat /all/labels; echo; cat /all/memory", "colour=\"blue\"\n33554432")
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(shell(h, "passing", "cat /all/token"), ".")[1])
	if err != nil || !strings.Contains(string(claims), `"aud":["elsewhere"]`) || !strings.Contains(string(claims), `"name":"passing"`) {
		t.Errorf("the token says %s (%v)", claims, err)
	}
	h.Kubectl("label", "--overwrite", "pod", "passing", "colour=green")
	expect(t, "green", func() (string, error) { return h.TryCoracle("kubectl", "exec", "passing", "--", "cat", "/all/labels") })
}

func testImmutable(t *testing.T, h *hosts.Host) {
	for kind, patch := range map[string]string{"configmap": `{"data":{"word":"sand"}}`, "secret": `{"stringData":{"word":"sand"}}`} {
		for what, patch := range map[string]string{"changing it": patch, "making it mutable": `{"immutable":false}`} {
			if out, err := h.TryCoracle("kubectl", "patch", kind, "carved", "-p", patch); err == nil || !strings.Contains(err.Error(), "immutable") {
				t.Errorf("%s %s: %s %v", kind, what, out, err)
			}
		}
	}
}
