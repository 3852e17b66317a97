package manifests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// later lets time pass.
func (a *api) later() { a.now = a.now.Add(settleFiles) }

// still runs a step and compares what exists, and that the next look is due within the given time.
func still(t *testing.T, d *deployer, a *api, exists string, within time.Duration) {
	t.Helper()
	d.step(t.Context())
	if got, _ := a.look(); got != exists {
		t.Errorf("exists %q, want %q", got, exists)
	}
	if wait := d.due().Sub(a.now); wait != within {
		t.Errorf("the next look is in %s, not in %s", wait, within)
	}
}

// TestFilesAreCopiedBack one by one, into a new directory and into one that was emptied: those that are still missing keep
// their objects. Files that are back are looked after again.
func TestFilesAreCopiedBack(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"replaced": func(dir string) error { return errors.Join(os.Rename(dir, dir+".kept"), os.Mkdir(dir, 0o700)) },
		"emptied": func(dir string) error {
			var errs []error
			for _, file := range []string{"x.yaml", "y.yaml", "z.yaml"} {
				errs = append(errs, os.Remove(filepath.Join(dir, file)))
			}
			return errors.Join(errs...)
		},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restart: ", restart), func(t *testing.T) {
				a, dir := newAPI(t), filepath.Join(t.TempDir(), "manifests")
				write(t, dir, map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("b"), "z.yaml": configMaps("c")})
				d := a.start(dir)
				expect(t, d, a, "a b c", "a b c")
				if err := lose(dir); err != nil {
					t.Fatal(err)
				}
				warned := warnings(d)
				for range 2 {
					expect(t, d, a, "a b c", "")
				}
				if w := warned(); len(w) != 1 || !strings.Contains(w[0], "x.yaml (ConfigMap default/a); y.yaml (ConfigMap default/b); z.yaml") {
					t.Errorf("warnings: %q", w)
				}
				if restart {
					d = a.start(dir)
					expect(t, d, a, "a b c", "")
				}
				write(t, dir, map[string]string{"x.yaml": configMaps("a")})
				expect(t, d, a, "a b c", "a")
				write(t, dir, map[string]string{"y.yaml": configMaps("b")})
				expect(t, d, a, "a b c", "b")
				os.Remove(filepath.Join(dir, "x.yaml")) // that is meant
				expect(t, d, a, "b c", "")
				os.Remove(filepath.Join(dir, "y.yaml")) // the last file, but not several at once
				expect(t, d, a, "c", "")
			})
		}
	}
}

// TestTheDirectoryIsBeingFilled when coracle starts: nothing is removed before the directory has not changed for a while.
func TestTheDirectoryIsBeingFilled(t *testing.T) {
	a, dir := newAPI(t), t.TempDir()
	write(t, dir, map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("b")})
	expect(t, a.start(dir), a, "a b", "a b")
	os.Remove(filepath.Join(dir, "x.yaml"))
	d := a.start(dir)
	d.scan()
	still(t, d, a, "a b", settleFiles)
	a.now = a.now.Add(settleFiles - time.Second)
	still(t, d, a, "a b", time.Second)
	write(t, dir, map[string]string{"z.yaml": configMaps("c")})
	d.scan()
	still(t, d, a, "a b c", settleFiles)
	a.later()
	still(t, d, a, "b c", time.Hour)

	os.Remove(filepath.Join(dir, "y.yaml")) // the directory has been complete since the start
	d.scan()
	still(t, d, a, "c", time.Hour)
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
	a.later()
	os.Remove(filepath.Join(away, "x.yaml"))
	move(t, away, dir)
	d.scan()
	still(t, d, a, "a", settleFiles)
	a.later()
	still(t, d, a, "", time.Hour)
}
