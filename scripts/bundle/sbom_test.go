package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// testSBOM describes a release with this test's own executable instead of coracle.
func testSBOM(t *testing.T) *sbom {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{"coracle-linux-amd64"}, goPrograms...) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", self, path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s := newSBOM(release{dir, "v1.2.3+coracle.4", "abc", "2026-01-02T03:04:05Z", "3.10"})
	file, err := s.file(filepath.Join(dir, "coracle-linux-amd64"), "coracle-linux-amd64")
	if err != nil {
		t.Fatal(err)
	}
	s.relate("SPDXRef-Package-coracle", "CONTAINS", file)
	if err := s.programs(dir, file, "amd64", "v1.2.3+coracle.4"); err != nil {
		t.Fatal(err)
	}
	id := s.module(&debug.Module{Path: "github.com/Old/Name", Version: "v1.0.0", Replace: &debug.Module{
		Path: "github.com/New/Name/v2", Version: "v2.0.0+incompatible", Sum: "h1:x=",
	}})
	s.relate(file, "CONTAINS", id)
	changed := s.module(&debug.Module{Path: "github.com/Some/Program", Version: "v3.0.0", Replace: &debug.Module{Path: "../../build/program", Version: "(devel)"}})
	s.relate(file, "CONTAINS", changed)
	return s
}

// TestSBOM checks requirements of SPDX 2.3: identifiers are unique and well formed, relationships are between existing
// elements, and all are reachable from the document.
func TestSBOM(t *testing.T) {
	s := testSBOM(t)
	known := map[string]bool{"SPDXRef-DOCUMENT": true}
	enter := func(id string) {
		if !regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`).MatchString(id) || known[id] {
			t.Errorf("%s is malformed or there twice", id)
		}
		known[id] = true
	}
	for _, p := range s.doc.Packages {
		enter(p.ID)
		if p.Name == "" || p.Version == "" || p.Download == "" {
			t.Errorf("a package lacks its name, version or location: %+v", p)
		}
	}
	for _, f := range s.doc.Files {
		enter(f.ID)
	}
	reached := map[string]bool{"SPDXRef-DOCUMENT": true}
	for _, r := range s.doc.Relationships {
		if !known[r.From] || !known[r.To] || !reached[r.From] {
			t.Errorf("%v is about something that is not there", r)
		}
		reached[r.To] = true
	}
	for id := range known {
		if !reached[id] {
			t.Errorf("nothing says what %s has to do with coracle", id)
		}
	}
}

func TestSBOMIsTheSameTwice(t *testing.T) {
	s := testSBOM(t)
	one, err := s.marshal()
	if err != nil {
		t.Fatal(err)
	}
	two, err := testSBOM(t).marshal()
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("two documents of the same files differ (%v)", err)
	}
	for _, want := range []string{
		`"https://proxy.golang.org/github.com/!new/!name/v2/@v/v2.0.0+incompatible.zip"`,
		`"pkg:golang/github.com/new/name/v2@v2.0.0%2Bincompatible"`, `"versionInfo": "v1.2.3+coracle.4"`,
		`"pkg:golang/github.com/some/program@v3.0.0"`, `"sourceInfo": "with the changes of scripts/bundle/overlay/patched.go"`,
	} {
		if !strings.Contains(string(one), want) {
			t.Errorf("no %s in\n%s", want, one)
		}
	}
}
