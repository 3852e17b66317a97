package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/coracle-dev/coracle/pkg/core/filewatch"
)

// move gives the directory another name, as a machine that is lost does.
func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// warnings is what a deployer warns of.
func warnings(d *deployer) func() []string {
	d.log.Logger.SetLevel(logrus.WarnLevel)
	hook := logtest.NewLocal(d.log.Logger)
	return func() (out []string) {
		for _, e := range hook.AllEntries() {
			text, _ := e.String()
			out = append(out, text)
		}
		hook.Reset()
		return out
	}
}

// TestAnotherDirectoryRemovesNothing: a backup is restored on a new machine, a server joins again with a new disk, a mount is late.
func TestAnotherDirectoryRemovesNothing(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir, kept := filepath.Join(base, "manifests"), filepath.Join(base, "kept")
	write(t, dir, map[string]string{"x.yaml": configMaps("a", "b"), "y.yaml": configMaps("c")})
	expect(t, a.start(dir), a, "a b c", "a b c")

	move(t, dir, kept)
	write(t, dir, nil)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 { // starts
		d := a.start(dir)
		warned := warnings(d)
		expect(t, d, a, "a b c", "")
		expect(t, d, a, "a b c", "")
		w := warned()
		if len(w) != 1 || !strings.Contains(w[0], "y.yaml (ConfigMap default/c)") || !strings.Contains(w[0], "x.yaml (") {
			t.Errorf("warnings: %q", w)
		}
	}
	d := a.start(dir)
	write(t, dir, map[string]string{"x.yaml": configMaps("a")}) // another version of the file: what it does not say is nobody's
	expect(t, d, a, "a b c", "a")
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "b c", "")

	os.RemoveAll(dir)
	move(t, kept, dir) // the mount is there
	os.Remove(filepath.Join(dir, "y.yaml"))
	expect(t, d, a, "a b", "a b")
}

func TestTheDirectoryIsExchangedMeanwhile(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir := filepath.Join(base, "manifests")
	write(t, dir, map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("b")})
	d := a.start(dir)
	expect(t, d, a, "a b", "a b")
	move(t, dir, filepath.Join(base, "aside"))
	expect(t, d, a, "a b", "")
	os.Mkdir(dir, 0o700)
	expect(t, d, a, "a b", "")
	write(t, dir, map[string]string{"x.yaml": configMaps("a")})
	expect(t, d, a, "a b", "a")

	write(t, dir, map[string]string{"z.yaml": configMaps("c")})
	expect(t, d, a, "a b c", "c")
	os.Remove(filepath.Join(dir, "x.yaml"))
	expect(t, d, a, "b c", "")
	d = a.start(dir)
	os.Remove(filepath.Join(dir, "z.yaml"))
	expect(t, d, a, "b", "")
}

// TestRecordsOfOlderVersions name no directory, or one by the text of a file in it. What is missing at the upgrade stays.
func TestRecordsOfOlderVersions(t *testing.T) {
	for name, c := range map[string]struct {
		left   []string
		exists string
	}{
		"the same directory, one file was removed": {[]string{"y.yaml"}, "a b"},
		"a new directory":                          {nil, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			a, dir := newAPI(t), t.TempDir()
			write(t, dir, map[string]string{"x.yaml": configMaps("a"), "y.yaml": configMaps("b")})
			d := a.start(dir)
			expect(t, d, a, "a b", "a b")
			for _, r := range d.inventory {
				r.dirID = ""
				if err := r.save(t.Context(), d.client, true); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"x.yaml", "y.yaml"} {
				if !strings.Contains(strings.Join(c.left, " "), name) {
					os.Remove(filepath.Join(dir, name))
				}
			}
			for range 2 {
				expect(t, a.start(dir), a, c.exists, strings.Trim(strings.Repeat("b", len(c.left)), " "))
			}
		})
	}
}

func TestLinks(t *testing.T) {
	a, base := newAPI(t), t.TempDir()
	dir, real, elsewhere := filepath.Join(base, "manifests"), filepath.Join(base, "real"), filepath.Join(base, "elsewhere")
	write(t, real, map[string]string{"x.yaml": configMaps("a")})
	write(t, elsewhere, map[string]string{"app.yaml": configMaps("b")})
	for link, target := range map[string]string{dir: real, filepath.Join(real, "y.yaml"): filepath.Join(elsewhere, "app.yaml")} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	d := a.start(dir)
	expect(t, d, a, "a b", "a b")
	move(t, elsewhere, elsewhere+".away")
	expect(t, d, a, "a b", "")
	if s := d.statuses()[1]; s.File != "y.yaml" || !strings.Contains(s.Error, "no such file") {
		t.Errorf("status is %+v", s)
	}
	move(t, real, real+".away")
	expect(t, d, a, "a b", "")
	d = a.start(dir)
	expect(t, d, a, "a b", "")
	move(t, real+".away", real)
	expect(t, d, a, "a b", "a")
	os.Remove(filepath.Join(real, "x.yaml"))
	expect(t, d, a, "b", "")
	os.Remove(filepath.Join(real, "y.yaml"))
	expect(t, d, a, "", "")
}

func TestWatchLinks(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "manifests")
	one, two := filepath.Join(base, "one"), filepath.Join(base, "two")
	write(t, two, map[string]string{"a.yaml": secret})
	lead := func(to string) {
		os.Remove(dir)
		if err := os.Symlink(to, dir); err != nil {
			t.Fatal(err)
		}
	}
	lead(one) // nowhere
	changes, err := watchDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		do   func()
	}{
		{"the link's target comes", func() { write(t, one, map[string]string{"a.yaml": secret}) }},
		{"a file", func() { write(t, one, map[string]string{"b.yaml": secret}) }},
		{"the link leads elsewhere", func() { lead(two) }},
		{"a file where it led before", func() { write(t, one, map[string]string{"c.yaml": secret}) }},
		{"a file there", func() { write(t, two, map[string]string{"b.yaml": secret}) }},
		{"its target goes", func() { os.Rename(two, two+".away") }},
		{"the link goes", func() { os.Remove(dir) }},
		{"a file in the new directory", func() { write(t, dir, map[string]string{"b.yaml": secret}) }},
	} {
		noticed := tt.name != "a file where it led before"
		patience := 2 * filewatch.Interval
		if noticed {
			patience = 20 * time.Second
		}
		tt.do()
		select {
		case <-changes:
			if !noticed {
				t.Errorf("%s: noticed", tt.name)
			}
		case <-time.After(patience):
			if noticed {
				t.Errorf("%s: not noticed", tt.name)
			}
		}
		for quiet := false; !quiet; {
			select {
			case <-changes:
			case <-time.After(filewatch.Interval + 2*filewatch.Settle):
				quiet = true
			}
		}
	}
}
