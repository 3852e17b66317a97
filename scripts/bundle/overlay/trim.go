package overlay

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// trim is what is left out of a module's packages, with the imports that nothing needs any more. It fails if something is not there.
type trim struct {
	packages  []string // directories
	files     []string // whole files
	functions []string // functions and methods of these names, in all packages
	types     []string // with their methods
	// calls are statements that call one of these functions with an argument of one of the types, or with any argument where it is written as CALL(*).
	calls []string
}

// leaveOut changes sources, the files of a module by name.
func (t trim) leaveOut(sources map[string][]byte) error {
	missing := map[string]bool{}
	for _, name := range slices.Concat(t.functions, t.types, t.calls) {
		missing[name] = true
	}
	for _, name := range t.files {
		if sources[name] == nil {
			return fmt.Errorf("there is no %s: see what has changed upstream", name)
		}
		delete(sources, name)
	}
	for name, data := range sources {
		if !slices.Contains(t.packages, path.Dir(name)) || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		cut, err := t.cut(name, data, missing)
		if err != nil {
			return err
		}
		sources[name] = cut
	}
	for name := range missing {
		return fmt.Errorf("there is no %s: see what has changed upstream", name)
	}
	return nil
}

// cut returns a file without what is left out.
func (t trim) cut(name string, data []byte, missing map[string]bool) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var gone []ast.Node
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			switch receiver := receiverOf(d); {
			case slices.Contains(t.functions, d.Name.Name):
				delete(missing, d.Name.Name)
				gone = append(gone, d)
			case slices.Contains(t.types, receiver):
				gone = append(gone, d)
			case d.Name.Name == "init":
				gone = append(gone, t.callsIn(d.Body, missing)...)
			}
		case *ast.GenDecl:
			gone = append(gone, t.specsOf(d, missing)...)
		}
	}
	if len(gone) == 0 {
		return data, nil
	}
	used := namesBesides(file, gone)
	for _, i := range file.Imports {
		if !used[importName(i)] && importName(i) != "_" {
			gone = append(gone, i)
		}
	}
	out := slices.Clone(data)
	for _, n := range gone { // with blanks, so that the lines of errors are upstream's
		for i := set.Position(n.Pos()).Offset; i < set.Position(n.End()).Offset; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	return out, nil
}

// specsOf returns the types of a declaration that are left out, and the variables without a name, which only have the compiler check something.
func (t trim) specsOf(d *ast.GenDecl, missing map[string]bool) (gone []ast.Node) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if slices.Contains(t.types, s.Name.Name) {
				delete(missing, s.Name.Name)
				gone = append(gone, s)
			}
		case *ast.ValueSpec:
			if len(s.Names) == 1 && s.Names[0].Name == "_" {
				gone = append(gone, s)
			}
		}
	}
	if len(gone) == len(d.Specs) && len(gone) > 0 {
		return []ast.Node{d}
	}
	return gone
}

// callsIn returns the calls of a function's body that are left out.
func (t trim) callsIn(body *ast.BlockStmt, missing map[string]bool) (gone []ast.Node) {
	for _, s := range body.List {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			continue
		}
		call, ok := e.X.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			continue
		}
		function := ""
		if f, ok := call.Fun.(*ast.SelectorExpr); ok {
			function = f.Sel.Name
		}
		argument := "*"
		if literal, ok := call.Args[0].(*ast.CompositeLit); ok {
			if of, ok := literal.Type.(*ast.Ident); ok {
				argument = of.Name
			}
		}
		for _, c := range []string{function + "(" + argument + ")", function + "(*)"} {
			if slices.Contains(t.calls, c) {
				delete(missing, c)
				gone = append(gone, s)
				break
			}
		}
	}
	return gone
}

// receiverOf returns the name of a method's type.
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	name, _ := of.(*ast.Ident)
	if name == nil {
		return ""
	}
	return name.Name
}

// namesBesides returns the names of what may be packages, in what is left of a file.
func namesBesides(file *ast.File, gone []ast.Node) map[string]bool {
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil || slices.Contains(gone, n) {
			return false
		}
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	return used
}

// importName returns the name that a file has for an imported package.
func importName(i *ast.ImportSpec) string {
	if i.Name != nil {
		return i.Name.Name
	}
	from, _ := strconv.Unquote(i.Path.Value)
	base := path.Base(from)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(from))
	}
	return strings.TrimSuffix(strings.TrimPrefix(base, "go-"), "-go")
}
