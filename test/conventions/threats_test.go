package conventions

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestThreatModel: every test that docs/security.md names exists, with its subtest.
func TestThreatModel(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	dirs, texts := map[string][]string{}, map[string]string{} // of each test; the source of the tests of each directory
	for _, s := range all(t) {
		if !s.test {
			continue
		}
		texts[s.dir] += s.text
		for _, decl := range s.ast.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				dirs[f.Name.Name] = append(dirs[f.Name.Name], s.dir)
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/([^`]+))?`").FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 {
		t.Fatal("docs/security.md names no test")
	}
	for _, n := range named {
		found := false
		sub := strings.ReplaceAll(n[2][strings.LastIndex(n[2], "/")+1:], "_", " ")
		for _, dir := range dirs[n[1]] {
			found = found || sub == "" || strings.Contains(texts[dir], strconv.Quote(sub))
		}
		if !found {
			t.Errorf("docs/security.md names %s, which does not exist", n[0])
		}
	}
}
