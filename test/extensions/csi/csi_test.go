package csi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-dev/coracle/test/extensions/cluster"
)

// TestCSI uses each kind of volume of a CSI driver, with upstream's sidecars.
func TestCSI(t *testing.T) {
	programs := os.Getenv("CORACLE_TEST_CSI")
	if programs == "" {
		t.Skip("CORACLE_TEST_CSI does not name the directory that test/csi/build makes: run `make extensions SUBJECT=csi`")
	}
	const upstream = "registry.k8s.io/sig-storage/"
	var images []string
	for program, name := range map[string]string{
		"csi": "csi.test/driver:1", "csi-provisioner": upstream + "csi-provisioner:v6.4.0", "csi-attacher": upstream + "csi-attacher:v4.13.0",
		"csi-resizer": upstream + "csi-resizer:v2.3.0", "csi-snapshotter": upstream + "csi-snapshotter:v8.6.0",
		"snapshot-controller": upstream + "snapshot-controller:v8.6.0",
	} {
		images = append(images, cluster.ProgramImage(t, name, filepath.Join(programs, program)))
	}
	c := cluster.Start(t, "csi", cluster.Options{Images: []string{"busybox"}, Archives: images})
	s := c.Space(t)
	for _, heading := range []string{"Installation", "Volumes of a pod", "Snapshots", "Expansion", "What is left"} {
		t.Run(heading, func(t *testing.T) {
			s.Play(t, heading, "NODE="+c.Nodes[0].Name, "CRDS="+filepath.Join(programs, "crd"))
		})
	}
}
