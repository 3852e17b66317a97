package stage

import (
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/machines"
)

const keeper = `
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: keeper, image: 'registry.k8s.io/e2e-test-images/agnhost:2.66.1', command: [/agnhost, pause], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

// note is the content of the volume of pod keeper.
const note = "keep this"

// Keep creates a pod with a volume, and writes a note to it.
func (s Server) Keep(t testing.TB) {
	t.Helper()
	s.Write("/root/keeper.yaml", keeper)
	folder := s.Claim(t, "data")
	s.Sh(`coracle kubectl apply -f /root/keeper.yaml
		coracle kubectl wait pod/keeper --for=condition=Ready --timeout=300s
		echo '` + note + `' >` + folder + `/note`)
}

// Kept fails the test unless the volume has the note.
func (s Server) Kept(t testing.TB) {
	t.Helper()
	if got := s.Sh("cat " + s.Folder("data") + "/note"); strings.TrimSpace(got) != note {
		t.Fatalf("the volume holds %q", got)
	}
}

// Claim creates a claim for a volume on this node, in the way of the scheduler, and returns the folder.
func (s Server) Claim(t testing.TB, name string) string {
	t.Helper()
	if err := s.TryClaim(name); err != nil {
		t.Fatal(err)
	}
	return s.Folder(name)
}

// TryClaim is Claim while it may fail because the installed coracle is a stand-in.
func (s Server) TryClaim(name string) error {
	_, err := s.TrySh(`node=$(` + machines.Bin + ` kubectl get nodes -o 'jsonpath={.items[0].metadata.name}')
		` + machines.Bin + ` kubectl apply -f - <<END
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ` + name + `, annotations: {volume.kubernetes.io/selected-node: $node}}
spec: {accessModes: [ReadWriteOnce], storageClassName: local-path, resources: {requests: {storage: 1Mi}}}
END
		` + machines.Bin + ` kubectl wait pvc/` + name + ` --for=jsonpath={.status.phase}=Bound --timeout=120s`)
	return err
}

// Folder is the folder of a claim's volume.
func (s Server) Folder(claim string) string {
	return s.Sh(`coracle kubectl get pv "$(coracle kubectl get pvc ` + claim + ` -o 'jsonpath={.spec.volumeName}')" -o 'jsonpath={.spec.local.path}'`)
}

// Forget removes pod keeper and claims, and waits until their folders are removed.
func (s Server) Forget(t testing.TB, claims ...string) {
	t.Helper()
	var folders []string
	for _, c := range claims {
		folders = append(folders, s.Folder(c))
	}
	s.Sh(`coracle kubectl delete pod/keeper pvc/` + strings.Join(claims, " pvc/") + `
		for folder in ` + strings.Join(folders, " ") + `; do
			for n in $(seq 300); do [ -e "$folder" ] || break; sleep 0.1; done
			[ ! -e "$folder" ] || { echo "$folder is still there" >&2; exit 1; }
		done`)
}
