package manifests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	embedded "github.com/coracle-dev/coracle/manifests"
	"github.com/coracle-dev/coracle/pkg/core/state"
)

// TestWhatIsMadeAnew: an embedded object with a field that cannot change is, and nothing else that is refused.
func TestWhatIsMadeAnew(t *testing.T) {
	const configMap = "/api/v1/namespaces/default/configmaps/a"
	kind := func(apiVersion, kind string) string {
		return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: a}\n"
	}
	for name, c := range map[string]struct {
		text, path, field string
		anew              bool
	}{
		"a field that cannot change":        {configMaps("a"), configMap, "data", true},
		"a policy's refusal":                {configMaps("a"), configMap, "", false},
		"what people may edit":              {strings.ReplaceAll(configMaps("a"), "name: a", "name: a, annotations: {coracle.io/apply: unless-edited}"), configMap, "data", false},
		"a kind, and with it all objects":   {kind("apiextensions.k8s.io/v1", crd), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a", "status.storedVersions", false},
		"a namespace, and all that's there": {kind("v1", "Namespace"), "/api/v1/namespaces/a", "metadata", false},
	} {
		t.Run(name, func(t *testing.T) {
			a, dir := newAPI(t), t.TempDir()
			file := func(comment string) embedded.File {
				return embedded.File{Name: "dns.yaml", Data: []byte(c.text + comment)}
			}
			expect(t, a.start(dir, file("")), a, "a", "a")
			before := a.objects[c.path].GetUID()
			a.refuse[c.path], a.field = http.StatusUnprocessableEntity, c.field
			d := a.start(dir, file("# new\n"))
			d.step(t.Context())
			if o := a.objects[c.path]; o == nil {
				t.Error("it is gone")
			} else if anew := o.GetUID() != before; anew != c.anew {
				t.Errorf("made anew: %v", anew)
			}
			if s := d.statuses()[0]; (s.State == state.ManifestApplied) != c.anew {
				t.Errorf("status is %+v", s)
			}
		})
	}
}

// TestFormerVersion: an object is deleted though the version that it was applied with is not served any more.
func TestFormerVersion(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	a.boats = true
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: boat}\n"})
	expect(t, d, a, "boat", "boat")
	for _, e := range d.inventory {
		for i := range e.objects {
			e.objects[i].APIVersion = "example.com/v1beta1"
		}
	}
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "", "")
}

// TestEmbeddedKindsStay: with a kind all its objects would go, when a service is disabled, or a server is not upgraded yet.
func TestEmbeddedKindsStay(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	kinds := configMaps("a") + "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: boats}\n"
	expect(t, a.start(dir, embedded.File{Name: "helm.yaml", Data: []byte(kinds)}), a, "a boats", "a boats")
	expect(t, a.start(dir, embedded.File{Name: "helm.yaml", Data: []byte(configMaps("a"))}), a, "a boats", "a")
	expect(t, a.start(dir, embedded.File{Name: "helm.yaml", Data: []byte(kinds)}), a, "a boats", "a boats")
	expect(t, a.start(dir), a, "boats", "")
	d := a.start(dir)
	write(t, dir, map[string]string{"mine.yaml": kinds})
	expect(t, d, a, "a boats", "a boats")
	write(t, dir, map[string]string{"mine.yaml": configMaps("a")})
	expect(t, d, a, "a", "a")
}

// TestAHalfWrittenFileRemovesNothing: copying over a file may stop for a while between two documents.
func TestAHalfWrittenFileRemovesNothing(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b"), "y.yaml": configMaps("c")})
	d := a.start(dir)
	expect(t, d, a, "a b c", "a b c")
	write(t, dir, map[string]string{"x.yaml": ""})
	d.scan()
	still(t, d, a, "a b c", settleFiles)
	write(t, dir, map[string]string{"x.yaml": configMaps("d")})
	d.scan()
	still(t, d, a, "a b c d", settleFiles)
	if s := d.statuses()[0]; s.State != state.ManifestApplied || s.Objects != 1 {
		t.Errorf("status is %+v", s)
	}
	a.now = a.now.Add(settleFiles - time.Second)
	still(t, d, a, "a b c d", time.Second)
	write(t, dir, map[string]string{"x.yaml": configMaps("d", "a")})
	a.later() // the change is not yet noticed
	still(t, d, a, "a b c d", settleFiles)
	os.Remove(filepath.Join(dir, "y.yaml")) // that is meant
	d.scan()
	still(t, d, a, "a b d", settleFiles)
	d = a.start(dir)
	d.scan()
	still(t, d, a, "a b d", settleFiles)
	a.later()
	still(t, d, a, "a d", time.Hour)
}

func TestAnEmptiedFileRemovesAll(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b")})
	expect(t, d, a, "a b", "a b")
	const refused = "/api/v1/namespaces/default/configmaps/b"
	a.refuse[refused] = http.StatusServiceUnavailable
	write(t, dir, map[string]string{"x.yaml": "# nothing any more\n"})
	expect(t, d, a, "b", "")
	delete(a.refuse, refused)
	d.wake()
	expect(t, d, a, "", "")
	if s := d.statuses()[0]; s.State != state.ManifestApplied || s.Objects != 0 {
		t.Errorf("status is %+v", s)
	}
}

// TestARefusedEmbeddedFile does not hold a start up if trying again is of no use; a policy may be changed.
func TestARefusedEmbeddedFile(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	const path = "/api/v1/namespaces/default/configmaps/a"
	file := strings.ReplaceAll(configMaps("a"), "name: a", "name: a, annotations: {coracle.io/apply: unless-edited}")
	beside := embedded.File{Name: "metrics.yaml", Data: []byte(configMaps("b"))}
	expect(t, a.start(dir, embedded.File{Name: "dns.yaml", Data: []byte(file)}, beside), a, "a b", "a b")
	a.refuse[path], a.field = http.StatusUnprocessableEntity, "data"
	d := a.start(dir)
	d.Embedded = []embedded.File{{Name: "dns.yaml", Data: []byte(file + "# new\n")}, beside}
	a.look()
	if err := d.deployEmbedded(t.Context()); err != nil {
		t.Error(err)
	}
	if _, applied := a.look(); applied != "" { // what did not change is, when its time comes
		t.Errorf("the start was held up until %q was applied", applied)
	}
	if wait := time.Until(d.earliest(unfinished)); wait < lastPause {
		t.Errorf("tried again in %s", wait)
	}
	a.field = ""
	d = a.start(dir, d.Embedded[0])
	d.step(t.Context())
	if wait := time.Until(d.due()); wait > lastPause {
		t.Errorf("what a policy refuses is tried again in %s", wait)
	}
}

// TestNodeOfAnotherServer cannot be read for a while. Until it is known to be gone, objects of that server's files stay.
func TestNodeOfAnotherServer(t *testing.T) {
	a, dir, other := newAPI(t), t.TempDir(), t.TempDir()
	d, second := a.start(dir), a.start(other)
	second.Node = "n2"
	write(t, other, map[string]string{"y.yaml": configMaps("a")})
	expect(t, second, a, "a", "a")
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a", "a")
	const node = "/api/v1/nodes/n2"
	a.refuse[node] = http.StatusServiceUnavailable
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "a", "")
	delete(a.refuse, node) // there is none
	expect(t, d, a, "", "")
}
