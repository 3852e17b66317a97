package conventions

import (
	"go/ast"
	"go/format"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// TestExits: only main packages end the process, so that all other code returns.
func TestExits(t *testing.T) {
	for _, s := range product(t) {
		if under(s.dir, "cmd") {
			continue
		}
		calls(s, func(pkg, name string, at *ast.CallExpr) {
			if pkg == "os" && name == "Exit" || (pkg == "log" || pkg == "logrus") && (strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Panic")) {
				t.Errorf("%s: %s.%s outside cmd; return an error", s.line(at), pkg, name)
			}
		})
	}
}

// TestSleeps: no code sleeps in order to wait for something.
func TestSleeps(t *testing.T) {
	for _, s := range product(t) {
		calls(s, func(pkg, name string, at *ast.CallExpr) {
			if pkg == "time" && (name == "Sleep" || name == "Tick") {
				t.Errorf("%s: time.%s; wait for the event, or for a timer and ctx", s.line(at), name)
			}
		})
	}
}

// calls calls f for every call of a package's function, with the package's and the function's name.
func calls(s source, f func(pkg, name string, at *ast.CallExpr)) {
	ast.Inspect(s.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok {
				f(pkg.Name, sel.Sel.Name, call)
			}
		}
		return true
	})
}

func TestNoInit(t *testing.T) {
	for _, s := range all(t) {
		for _, decl := range s.ast.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: func init(); let the caller say what happens", s.line(f))
			}
		}
	}
}

// TestNoPackageState: package variables are constant tables; no code changes them after their declaration.
func TestNoPackageState(t *testing.T) {
	variables := map[string]map[string]bool{} // by directory
	for _, s := range product(t) {
		if variables[s.dir] == nil {
			variables[s.dir] = map[string]bool{}
		}
		for _, name := range packageVars(s) {
			variables[s.dir][name] = true
		}
	}
	for _, s := range product(t) {
		for _, decl := range s.ast.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				for at, name := range assigned(f) {
					if variables[s.dir][name] {
						t.Errorf("%s: changes %s, a variable of the package; pass it instead", s.line(at), name)
					}
				}
			}
		}
	}
}

// TestNoSharedLocks: a package has no lock or counter as a variable, because that guards package state.
func TestNoSharedLocks(t *testing.T) {
	for _, s := range product(t) {
		for _, decl := range s.ast.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			ast.Inspect(g, func(n ast.Node) bool {
				if _, ok := n.(*ast.FuncLit); ok {
					return false
				}
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := sel.X.(*ast.Ident); ok && (pkg.Name == "sync" || pkg.Name == "atomic") {
						t.Errorf("%s: a variable of the package with %s.%s; make it a field", s.line(g), pkg.Name, sel.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

// packageVars lists the variables that a file declares for its package.
func packageVars(s source) []string {
	var out []string
	for _, decl := range s.ast.Decls {
		if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, spec := range g.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					out = append(out, name.Name)
				}
			}
		}
	}
	return out
}

// assigned finds the names that a function assigns to without declaring them.
func assigned(f *ast.FuncDecl) map[ast.Node]string {
	local, out := map[string]bool{}, map[ast.Node]string{}
	declare := func(names ...*ast.Ident) {
		for _, n := range names {
			local[n.Name] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			declare(n.Names...)
		case *ast.ValueSpec:
			declare(n.Names...)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					declare(id)
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok && n.Tok == token.DEFINE {
					declare(id)
				}
			}
		}
		return true
	})
	note := func(e ast.Expr) {
		if id := root(e); id != nil && id.Name != "_" && !local[id.Name] {
			out[id] = id.Name
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, left := range n.Lhs {
					note(left)
				}
			}
		case *ast.IncDecStmt:
			note(n.X)
		}
		return true
	})
	return out
}

// root is the variable that an assignable expression begins with.
func root(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.IndexExpr:
		return root(e.X)
	case *ast.SelectorExpr:
		return root(e.X)
	case *ast.StarExpr:
		return root(e.X)
	case *ast.ParenExpr:
		return root(e.X)
	}
	return nil
}

// phrases are words that error messages must not contain.
var phrases = []struct {
	in  *regexp.Regexp
	why string
}{
	{regexp.MustCompile(`(?i)\bfailed to\b|\bcould not\b.*%w|\bunable to\b`), "say what was being done, as in \"reading %s: %w\""},
	{regexp.MustCompile(`%w\.$|%w!$`), "an error is the middle of a sentence"},
}

func TestErrorTexts(t *testing.T) {
	for _, s := range product(t) {
		calls(s, func(pkg, name string, at *ast.CallExpr) {
			if !(pkg == "fmt" && name == "Errorf" || pkg == "errors" && name == "New") {
				return
			}
			lit, ok := at.Args[0].(*ast.BasicLit)
			if !ok {
				return
			}
			for _, p := range phrases {
				if p.in.MatchString(strings.Trim(lit.Value, "\"`")) {
					t.Errorf("%s: %s: %s", s.line(lit), lit.Value, p.why)
				}
			}
		})
	}
}

func TestFormatted(t *testing.T) {
	for _, s := range all(t) {
		if want, err := format.Source([]byte(s.text)); err != nil || string(want) != s.text {
			t.Errorf("%s is not formatted: run gofmt -w", s.path)
		}
	}
}

// TestNoLeftovers: there are no TODO comments and no unused code.
func TestNoLeftovers(t *testing.T) {
	leftover := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	for _, s := range all(t) {
		if s.dir == "test/conventions" {
			continue
		}
		for _, group := range s.ast.Comments {
			if leftover.MatchString(group.Text()) {
				t.Errorf("%s: %s", s.line(group), leftover.FindString(group.Text()))
			}
		}
	}
}

// TestParallel: all end-to-end tests are parallel, because one that is not would block all others of its package.
func TestParallel(t *testing.T) {
	for _, s := range all(t) {
		if s.dir != "test/e2e" || !s.test {
			continue
		}
		for _, decl := range s.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain" {
				continue
			}
			parallel := false
			ast.Inspect(f.Body.List[0], func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Parallel" || sel.Sel.Name == "Take") {
					parallel = true
				}
				return true
			})
			if !parallel {
				t.Errorf("%s: %s: begin it with slots.Take(t), or with t.Parallel() if its subtests take slots", s.line(f), f.Name.Name)
			}
		}
	}
}
