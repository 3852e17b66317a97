package conventions

import (
	"go/ast"
	"os"
	"strings"
	"testing"

	"github.com/coracle-dev/coracle/test/slots"
)

// mostSlotSeconds limits the sum of the seconds of all tests in test/slots/budget.txt, each times its slots, but those in test/slots/longer.txt. Two
// cores have seven slots, so 4700 are 11 minutes. Before you raise it, look for an existing cluster that your subtest can use.
const mostSlotSeconds = 4700

// longerTests returns the names of the tests in test/slots/longer.txt.
func longerTests(t *testing.T) map[string]bool {
	data, err := os.ReadFile("../slots/longer.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			names[strings.NewReplacer("^", "", "$", "").Replace(line)] = false
		}
	}
	return names
}

// TestBudget: exactly the tests that start machines have a row in the table, and the sum of all rows is limited. Tests
// that take all slots are run by hand only.
func TestBudget(t *testing.T) {
	rows, err := slots.Budget()
	if err != nil {
		t.Fatal(err)
	}
	longer := longerTests(t)
	known, total := map[string]bool{}, 0
	for _, r := range rows {
		pkg, rest, _ := strings.Cut(r.Test, "/")
		name, _, _ := strings.Cut(rest, "/")
		known[pkg+"/"+name] = true
		_, later := longer[name]
		_, part := longer[rest]
		switch {
		case later:
			longer[name] = true
		case part:
			longer[rest] = true
		case !r.Alone:
			total += r.Slots * r.Seconds
		}
		for other := range longer {
			if strings.HasPrefix(other, rest+"/") { // a subtest; the row has the seconds of the others
				longer[other] = true
			}
		}
	}
	for name, found := range longer {
		if !found {
			t.Errorf("test/slots/longer.txt: %s has no row in test/slots/budget.txt", name)
		}
	}
	t.Logf("all tests need %d slot-seconds together", total)
	if total > mostSlotSeconds {
		t.Errorf("all tests need %d slot-seconds together; the limit is %d", total, mostSlotSeconds)
	}
	for _, s := range all(t) {
		if !s.test || !under(s.dir, "test") {
			continue
		}
		pkg := strings.TrimPrefix(s.dir, "test/")
		for _, decl := range s.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			takes := false
			ast.Inspect(f, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					pkg, ok := sel.X.(*ast.Ident)
					takes = takes || ok && pkg.Name == "slots" && sel.Sel.Name == "Take"
				}
				return true
			})
			name := pkg + "/" + f.Name.Name
			if takes && !known[name] {
				t.Errorf("%s: %s takes slots and has no row in test/slots/budget.txt", s.line(f), name)
			}
			if takes {
				delete(known, name)
			}
		}
	}
	for name := range known {
		t.Errorf("test/slots/budget.txt: no test %s takes slots", name)
	}
}
