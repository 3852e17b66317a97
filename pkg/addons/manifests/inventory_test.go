package manifests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coracle-dev/coracle/pkg/core/state"
)

// TestOwnFilesAreNotOthers: this server has a Node too, and does not keep what only its own files had.
func TestOwnFilesAreNotOthers(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	a.objects["/api/v1/nodes/n1"] = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1"}}}
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a n1", "a")
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "n1", "")
}

// TestTwoServersStartAtOnce: both apply the embedded files, and each believes that it is the first to record them.
func TestTwoServersStartAtOnce(t *testing.T) {
	a := newAPI(t)
	d, second := a.start(t.TempDir(), coredns("a")), a.start(t.TempDir(), coredns("a"))
	expect(t, d, a, "a", "a")
	expect(t, second, a, "a", "a")
	if s := second.statuses()[0]; s.State != state.ManifestApplied {
		t.Errorf("status is %+v", s)
	}
}

// TestARecordIsDeletedByHand: with the next change the file has one again, which the next start finds.
func TestARecordIsDeletedByHand(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a", "a")
	records := "/api/v1/namespaces/" + inventoryNamespace + "/configmaps/"
	delete(a.objects, records+record{file: fileID{"x.yaml", "n1"}}.configMap())
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b")})
	expect(t, d, a, "a b", "a b")
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, a.start(dir), a, "", "")
}

// TestEntriesOfOneObject: a namespace that the file leaves out, or another version of the API, is no other object.
func TestEntriesOfOneObject(t *testing.T) {
	e := entry{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}
	for other, same := range map[entry]bool{
		{APIVersion: "apps/v1beta1", Kind: "Deployment", Namespace: "default", Name: "a"}: true,
		{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "a"}:         false,
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "b"}:                            false,
		{APIVersion: "v1", Kind: "Deployment", Name: "a"}:                                 false,
	} {
		if got := e.identity() == other.identity(); got != same {
			t.Errorf("%+v: the same is %v", other, got)
		}
	}
}

// TestADamagedRecord is named, and nothing is done without it: its objects would be taken for nobody's.
func TestADamagedRecord(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a", "a")
	name := record{file: fileID{"x.yaml", "n1"}}.configMap()
	o := a.objects["/api/v1/namespaces/"+inventoryNamespace+"/configmaps/"+name]
	if err := unstructured.SetNestedField(o.Object, "[{", "data", "objects"); err != nil {
		t.Fatal(err)
	}
	if _, err := loadInventory(t.Context(), d.client, "n1"); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v", err)
	}
}

// TestNothingIsGoneBeforeTheFirstLook: embedded files are applied before the user's directory is read. Records of older versions, and
// those of a directory that was emptied, name no directory, as nothing does until then.
func TestNothingIsGoneBeforeTheFirstLook(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	d := a.start(dir)
	expect(t, d, a, "a", "a")
	for _, r := range d.inventory {
		r.dirID = ""
		if err := r.save(t.Context(), d.client, true); err != nil {
			t.Fatal(err)
		}
	}
	d = a.start(dir, coredns("e"))
	d.step(t.Context())
	if exists, _ := a.look(); exists != "a e" {
		t.Errorf("exists %q", exists)
	}
}

// TestARefusedFileIsNotRecordedAsApplied: the next start tries it at once.
func TestARefusedFileIsNotRecordedAsApplied(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	const path = "/api/v1/namespaces/default/configmaps/a"
	a.refuse[path] = http.StatusServiceUnavailable
	expect(t, a.start(dir, coredns("a", "b")), a, "b", "b")
	delete(a.refuse, path)
	expect(t, a.start(dir, coredns("a", "b")), a, "a b", "a b")
}

// TestAHiddenDirectory: what is in it is hidden in another one, and not if it is the directory itself, to which a link may lead.
func TestAHiddenDirectory(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir := filepath.Join(base, "manifests")
	write(t, filepath.Join(base, ".data"), map[string]string{"x.yaml": configMaps("a")})
	write(t, filepath.Join(base, ".data", ".git"), map[string]string{"y.yaml": configMaps("b")})
	if err := os.Symlink(".data", dir); err != nil {
		t.Fatal(err)
	}
	expect(t, a.start(dir), a, "a", "a")
}
