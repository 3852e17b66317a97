package conventions

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// budgets are in lines. p90 is the limit for nine of ten files or functions, so that the maximum does not become the
// normal length.
var budgets = struct{ file, fileP90, function, functionP90, functionMedian int }{
	file: 300, fileP90: 220, function: 100, functionP90: 40, functionMedian: 12,
}

func TestSizes(t *testing.T) {
	var files, functions []int
	for _, s := range product(t) {
		lines := strings.Count(s.text, "\n")
		files = append(files, lines)
		if lines > budgets.file {
			t.Errorf("%s has %d lines; the limit is %d", s.path, lines, budgets.file)
		}
		for _, decl := range s.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			functions = append(functions, s.lines(f))
			if s.lines(f) > budgets.function {
				t.Errorf("%s: %s has %d lines; the limit is %d", s.line(f), f.Name.Name, s.lines(f), budgets.function)
			}
		}
	}
	for _, x := range []struct {
		what      string
		all       []int
		part      float64
		mostLines int
	}{
		{"files", files, 0.9, budgets.fileP90},
		{"functions", functions, 0.9, budgets.functionP90},
		{"functions", functions, 0.5, budgets.functionMedian},
	} {
		slices.Sort(x.all)
		got := x.all[int(float64(len(x.all)-1)*x.part)]
		t.Logf("%.0f %% of %d %s have at most %d lines", x.part*100, len(x.all), x.what, got)
		if got > x.mostLines {
			t.Errorf("%.0f %% of %s have up to %d lines; the budget is %d", x.part*100, x.what, got, x.mostLines)
		}
	}
}
