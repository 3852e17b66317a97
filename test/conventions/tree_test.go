package conventions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/coracle-dev/coracle"

// source is one Go file.
type source struct {
	path string // from the top of the repository
	dir  string
	test bool // _test.go
	ast  *ast.File
	set  *token.FileSet
	text string
}

// line says where a node is, for a test's message.
func (s source) line(n ast.Node) string {
	return s.path + ":" + itoa(s.set.Position(n.Pos()).Line)
}

// lines is how many lines a node covers.
func (s source) lines(n ast.Node) int {
	return s.set.Position(n.End()).Line - s.set.Position(n.Pos()).Line + 1
}

// imports lists the paths of the packages that the file imports.
func (s source) imports() []string {
	var out []string
	for _, spec := range s.ast.Imports {
		out = append(out, strings.Trim(spec.Path.Value, `"`))
	}
	return out
}

const top = "../.."

// skipped are directories with code that is made by builds, or is a module of its own.
func skipped(path string, entry fs.DirEntry) bool {
	name := entry.Name()
	if name == "testdata" || path != top && strings.HasPrefix(name, ".") {
		return true
	}
	if rel, _ := filepath.Rel(top, path); rel == "build" || rel == "dist" {
		return true // made by the build
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil && path != top
}

// sources parses every Go file of the module once, whatever its build tags.
var sources = sync.OnceValues(func() ([]source, error) {
	var out []source
	set := token.NewFileSet()
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(path, entry) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, rel, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		out = append(out, source{path: rel, dir: filepath.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), ast: file, set: set, text: string(data)})
		return nil
	})
	return out, err
})

// all returns every file.
func all(t *testing.T) []source {
	t.Helper()
	out, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d files were found", len(out))
	}
	return out
}

// product returns the files that are not tests and not there for tests only.
func product(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(all(t)), func(s source) bool { return s.test || under(s.dir, "test") })
}

// under reports whether a directory is another or lies below it.
func under(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }
