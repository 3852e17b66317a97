package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// later is as if time passed in which the directory did not change.
func (d *deployer) later() { d.arrival.since = d.arrival.since.Add(-time.Hour) }

// still runs a step and compares what exists, and that a look at what is missing is due within the given time.
func still(t *testing.T, d *deployer, a *api, exists string, within time.Duration) {
	t.Helper()
	d.step(t.Context())
	if within == complete && time.Since(d.arrival.since) > complete {
		t.Skip("the machine is too slow for this")
	}
	if got, _ := a.look(); got != exists {
		t.Errorf("exists %q, want %q", got, exists)
	}
	if wait := time.Until(d.due()); wait > within || within == exchanged && wait < exchanged/2 {
		t.Errorf("the next look is in %s, not in %s", wait, within)
	}
}

// TestTheFormerDirectoryIsPutBack while coracle runs: its identity comes first, by the alphabet.
func TestTheFormerDirectoryIsPutBack(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir, kept := filepath.Join(base, "manifests"), filepath.Join(base, "kept")
	write(t, dir, map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("b"), "z.yaml": configMaps("c")})
	expect(t, a.start(dir), a, "a b c", "a b c")
	move(t, dir, kept)
	id, err := os.ReadFile(filepath.Join(kept, idFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := a.start(dir)
	expect(t, d, a, "a b c", "")

	warned := warnings(d)
	write(t, dir, map[string]string{idFile: string(id)})
	d.scan()
	still(t, d, a, "a b c", exchanged)
	if w := strings.Join(warned(), ""); !strings.Contains(w, "x.yaml; y.yaml; z.yaml") || !strings.Contains(w, "removed when") {
		t.Errorf("warnings: %q", w)
	}
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	d.later() // and then a file comes
	d.scan()
	still(t, d, a, "a b c", exchanged)
	write(t, dir, map[string]string{"y.yaml": configMaps("b")})
	d.later() // and one that nobody noticed yet
	still(t, d, a, "a b c", exchanged)
	d.scan()
	d.later() // and no more
	still(t, d, a, "a b", time.Hour)
	if w := warned(); len(w) > 0 {
		t.Errorf("warned again: %q", w)
	}
	os.Remove(filepath.Join(dir, "x.yaml")) // that is meant
	d.scan()
	still(t, d, a, "b", time.Hour)
}

// TestTheDirectoryWasJustChanged when coracle starts: somebody is filling it.
func TestTheDirectoryWasJustChanged(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	write(t, dir, map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("b")})
	expect(t, a.start(dir), a, "a b", "a b")
	os.Remove(filepath.Join(dir, "x.yaml"))
	past := func(ago time.Duration) {
		for _, path := range []string{dir, filepath.Join(dir, idFile), filepath.Join(dir, "y.yaml")} {
			if err := os.Chtimes(path, time.Time{}, time.Now().Add(-ago)); err != nil {
				t.Fatal(err)
			}
		}
	}
	past(-time.Hour) // the clock may have been wrong
	d := a.start(dir)
	d.scan()
	still(t, d, a, "a b", complete)
	past(0)
	d = a.start(dir)
	d.scan()
	still(t, d, a, "a b", complete)
	d.later()
	still(t, d, a, "b", time.Hour)

	past(time.Hour)
	os.Remove(filepath.Join(dir, "y.yaml"))
	if err := os.Chtimes(dir, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	d = a.start(dir)
	d.scan()
	still(t, d, a, "", time.Hour)
}

// TestTheDirectoryComesLate: a link led nowhere at start.
func TestTheDirectoryComesLate(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir, away := filepath.Join(base, "manifests"), filepath.Join(base, "away")
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, a.start(dir), a, "a", "a")
	move(t, dir, away)
	d := a.start(dir)
	d.scan()
	os.Remove(filepath.Join(away, "x.yaml"))
	if err := os.Chtimes(away, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	move(t, away, dir)
	d.scan()
	still(t, d, a, "a", exchanged)
	d.later()
	still(t, d, a, "", time.Hour)
}
