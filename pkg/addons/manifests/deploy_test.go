package manifests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	embedded "github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// configMaps is a file with one ConfigMap a name.
func configMaps(names ...string) string {
	var docs []string
	for _, name := range names {
		docs = append(docs, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+"}\n")
	}
	return strings.Join(docs, "---\n")
}

func coredns(names ...string) embedded.File {
	return embedded.File{Name: "dns.yaml", Data: []byte(configMaps(names...))}
}

// expect runs a step, when the directory has been as it is for long, and compares what exists and what was applied with
// what should.
func expect(t *testing.T, d *deployer, a *api, exists, applied string) {
	t.Helper()
	d.scan()
	a.later()
	d.step(t.Context())
	d.applier.forget()
	gotExists, gotApplied := a.look()
	if gotExists != exists {
		t.Errorf("exists  %q, want %q", gotExists, exists)
	}
	if gotApplied != applied {
		t.Errorf("applied %q, want %q", gotApplied, applied)
	}
}

func TestFilesComeChangeAndGo(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	expect(t, d, a, "", "")
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b"), "y.yaml": configMaps("c")})
	expect(t, d, a, "a b c", "a b c")
	expect(t, d, a, "a b c", "")

	write(t, dir, map[string]string{"x.yaml": configMaps("a", "d")})
	expect(t, d, a, "a c d", "a d")
	os.Remove(filepath.Join(dir, "y.yaml"))
	expect(t, d, a, "a d", "")

	d = a.start(dir) // a restart: what is gone meanwhile is removed, the rest applied again
	write(t, dir, map[string]string{"x.yaml": configMaps("d")})
	expect(t, d, a, "d", "d")
	os.Remove(filepath.Join(dir, "x.yaml"))
	d = a.start(dir)
	expect(t, d, a, "", "")
	if len(a.objects) != 0 {
		t.Errorf("left behind: %v", a.objects)
	}
}

func TestObjectsMoveBetweenFiles(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b")})
	expect(t, d, a, "a b", "a b")
	const path = "/api/v1/namespaces/default/configmaps/a"
	before := a.objects[path].GetUID()
	os.Rename(filepath.Join(dir, "x.yaml"), filepath.Join(dir, "z.yaml"))
	expect(t, d, a, "a b", "a b")
	write(t, dir, map[string]string{"other.yaml": configMaps("b"), "z.yaml": configMaps("a")})
	expect(t, d, a, "a b", "a b")
	if a.objects[path].GetUID() != before {
		t.Error("a was made anew")
	}
}

func TestServersShareAnObject(t *testing.T) {
	a, dir, other := newAPI(t), t.TempDir(), t.TempDir()
	a.objects["/api/v1/nodes/n2"] = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n2"}}}
	d, second := a.start(dir), a.start(other)
	second.Node = "n2"
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b")})
	expect(t, d, a, "a b n2", "a b")
	write(t, other, map[string]string{"y.yaml": configMaps("b")})
	expect(t, second, a, "a b n2", "b")
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "b n2", "")

	write(t, dir, map[string]string{"x.yaml": configMaps("b")})
	expect(t, d, a, "b n2", "b")
	os.Remove(filepath.Join(dir, "x.yaml"))
	delete(a.objects, "/api/v1/nodes/n2") // the server was removed from the cluster
	expect(t, d, a, "", "")
}

func TestABrokenFileChangesNothing(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b"), "y.yaml": configMaps("c")})
	expect(t, d, a, "a b c", "a b c")
	write(t, dir, map[string]string{"x.yaml": configMaps("a") + "---\n{", "y.yaml": configMaps("c", "d")})
	expect(t, d, a, "a b c d", "c d")
	d = a.start(dir)
	expect(t, d, a, "a b c d", "c d")
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a c d", "a")
}

// TestABrokenFileKeepsItsObjects even if another file had them too, and has them no more.
func TestABrokenFileKeepsItsObjects(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("a", "b")})
	expect(t, d, a, "a b", "a a b")
	write(t, dir, map[string]string{"x.yaml": "{", "y.yaml": configMaps("b")})
	expect(t, d, a, "a b", "b")
	write(t, dir, map[string]string{"x.yaml": configMaps("c")})
	expect(t, d, a, "b c", "c")
}

// TestASkippedFileKeepsItsObjects even if another file had them too, and has them no more.
func TestASkippedFileKeepsItsObjects(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("a", "b")})
	expect(t, d, a, "a b", "a a b")
	write(t, dir, map[string]string{"x.yaml.skip": "", "y.yaml": configMaps("b")})
	expect(t, d, a, "a b", "b")
}

// TestWhatPeopleMayEditStays when the file no longer contains it, and when the file is removed.
func TestWhatPeopleMayEditStays(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	edited := strings.ReplaceAll(configMaps("a", "b"), "name: ", "annotations: {coracle.io/apply: unless-edited}, name: ")
	write(t, dir, map[string]string{"x.yaml": edited})
	expect(t, d, a, "a b", "a b")
	write(t, dir, map[string]string{"x.yaml": strings.ReplaceAll(edited, "name: b", "name: c")})
	expect(t, d, a, "a b c", "a c")
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "a b c", "")
}

func TestAFileThatIsRefusedRemovesNothing(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b")})
	expect(t, d, a, "a b", "a b")
	const refused = "/api/v1/namespaces/default/configmaps/bad"
	a.refuse[refused] = http.StatusBadRequest
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "bad")})
	expect(t, d, a, "a b", "a")
	s := d.statuses()[0]
	if s.State != state.ManifestFailed || s.Error != "line 5: ConfigMap bad: "+refused+" answers 400" || s.Objects != 2 {
		t.Errorf("status is %+v", s)
	}
	if f := d.files[fileID{"x.yaml", "n1"}]; !f.due.IsZero() {
		t.Error("it is tried again although that cannot help")
	}
	a.refuse[refused] = http.StatusServiceUnavailable
	write(t, dir, map[string]string{"x.yaml": configMaps("bad", "a")})
	expect(t, d, a, "a b", "a")
	if s := d.statuses()[0]; s.State != state.ManifestPending {
		t.Errorf("status is %+v", s)
	}
	delete(a.refuse, refused)
	d.wake()
	expect(t, d, a, "a bad", "a bad")
}

func TestSkipFreezes(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir, coredns("e"))
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a e", "a e")
	write(t, dir, map[string]string{"x.yaml.skip": "", "x.yaml": configMaps("b"), "dns.yaml.skip": ""})
	expect(t, d, a, "a e", "")
	d = a.start(dir, coredns("f"))
	expect(t, d, a, "a e", "")
	os.Remove(filepath.Join(dir, "x.yaml.skip"))
	os.Remove(filepath.Join(dir, "dns.yaml.skip"))
	expect(t, d, a, "b f", "b f")
}

func TestEmbeddedFilesAreAppliedWhenTheyChanged(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	expect(t, a.start(dir, coredns("a", "b")), a, "a b", "a b")
	expect(t, a.start(dir, coredns("a", "b")), a, "a b", "")
	expect(t, a.start(dir, coredns("a", "c")), a, "a c", "a c")

	d := a.start(dir, coredns("a", "c")) // later in the same start all are applied once more, against drift
	d.wake()
	expect(t, d, a, "a c", "a c")
	expect(t, a.start(dir), a, "", "") // disabled
}

func TestUnlessEdited(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	file := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, annotations: {coracle.io/apply: unless-edited}}\ndata: {x: %}\n"
	put := func(x string) { write(t, dir, map[string]string{"x.yaml": strings.ReplaceAll(file, "%", x)}) }
	d := a.start(dir)
	put("one")
	expect(t, d, a, "mine", "mine")
	put("two")
	expect(t, d, a, "mine", "mine")
	a.objects["/api/v1/namespaces/default/configmaps/mine"].SetLabels(map[string]string{"edited": "yes"})
	put("three")
	expect(t, d, a, "mine", "")
	if s := d.statuses()[0]; s.State != state.ManifestApplied {
		t.Errorf("status is %+v", s)
	}
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "mine", "")
}

func TestAnObjectMadeAnewBySomebodyIsTheirs(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a", "a")
	a.objects["/api/v1/namespaces/default/configmaps/a"].SetUID("somebody's")
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "a", "")
	if len(d.inventory) != 0 {
		t.Error("the file is still in the inventory")
	}
}

func TestAnObjectThatWasNeverAppliedIsTheirs(t *testing.T) {
	for name, status := range map[string]int{"for good": http.StatusUnprocessableEntity, "for now": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			a, dir := newAPI(t), t.TempDir()
			const path = "/api/v1/namespaces/default/configmaps/theirs"
			theirs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
				"name": "theirs", "uid": "somebody's", "managedFields": []any{map[string]any{"manager": "kubectl", "operation": "Apply"}}}}}
			a.objects[path], a.refuse[path] = theirs, status
			d := a.start(dir)
			write(t, dir, map[string]string{"x.yaml": configMaps("a", "theirs", "never")})
			a.refuse["/api/v1/namespaces/default/configmaps/never"] = status
			expect(t, d, a, "a theirs", "a")
			clear(a.refuse)
			os.Remove(filepath.Join(dir, "x.yaml"))
			expect(t, a.start(dir), a, "theirs", "")
			if len(a.objects) != 1 {
				t.Errorf("left behind: %v", a.objects)
			}
		})
	}
}

func TestOtherServersFilesAreTheirs(t *testing.T) {
	a := newAPI(t)
	theirs := a.start(t.TempDir())
	theirs.Node = "n2"
	write(t, theirs.Dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, theirs, a, "a", "a")
	expect(t, a.start(t.TempDir()), a, "a", "")
}

func TestAnUnreadableDirectoryChangesNothing(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a", "a")
	d.Dir = filepath.Join(dir, "elsewhere")
	expect(t, d, a, "a", "")
}

func TestCustomResourcesWaitForTheirKind(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	boat := "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: boat}\n---\n"
	write(t, dir, map[string]string{"x.yaml": boat + configMaps("a")})
	expect(t, d, a, "a", "a")
	if s := d.statuses()[0]; s.State != state.ManifestPending || !d.waitsForKind() {
		t.Errorf("status is %+v", s)
	}
	a.boats = true
	d.wake() // what an event about a CustomResourceDefinition does
	expect(t, d, a, "a boat", "a boat")
	if d.waitsForKind() {
		t.Error("it still waits")
	}
	os.Remove(filepath.Join(dir, "x.yaml"))
	a.boats = false
	d.applier.forget()
	expect(t, d, a, "boat", "") // with its kind the object is gone, in a real cluster
	if len(d.inventory) != 0 {
		t.Error("the file is still in the inventory")
	}
}

func TestAFileThatDisappearsDuringACrash(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	d.scan()
	for _, f := range d.todo() { // step, up to the crash
		if err := d.recordIntent(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		d.applyOne(t.Context(), f, f.objects[0])
	}
	os.Remove(filepath.Join(dir, "x.yaml"))
	a.look()
	expect(t, a.start(dir), a, "", "")
}
